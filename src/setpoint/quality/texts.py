"""The pinned texts of ``distributions``: changing one makes older records incomparable, so add, never edit."""

TEXTS = {
    "harbour": (
        "The harbour woke before the town did. Men in heavy coats carried boxes from the boats to the market hall, where "
        "the fish was weighed, sold and packed in ice within an hour. By seven the quay was clean again, and only the "
        "gulls remembered that anything had happened there at all."
    ),
    "recipe": (
        "To make the soup, cut two onions and three carrots into small pieces and cook them slowly in butter until they "
        "are soft. Add a litre of water, a spoon of salt and the peeled potatoes. After twenty minutes remove the pot "
        "from the heat, stir in the cream, and serve it with bread."
    ),
    "python": (
        "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n    return total / len(values)\n\n"
        "def variance(values):\n    centre = mean(values)\n    return sum((value - centre) ** 2 for value in values) / "
        "(len(values) - 1)\n"
    ),
    "record": (
        '{"order": 1042, "customer": {"name": "Ana Lind", "city": "Oslo"}, "items": [{"article": "lamp", "count": 2, '
        '"price": 39.5}, {"article": "chair", "count": 4, "price": 84.0}], "total": 415.0, "currency": "EUR", "paid": true}'
    ),
    "history": (
        "When the railway reached the valley in 1871, the old road lost its inns one by one. A journey that had taken two "
        "days now took three hours, and the villages between the two cities, once full of travellers, became quiet. Some "
        "of the larger houses were turned into schools, others were simply left to the rain."
    ),
    "support": (
        "Thank you for contacting us. I am sorry to hear that your parcel has not arrived yet. Could you please send me "
        "your order number and the address that you gave when you placed the order? As soon as I have them I will ask "
        "the carrier where the parcel is and let you know the answer today."
    ),
    "numbers": (
        "The first ten square numbers are 1, 4, 9, 16, 25, 36, 49, 64, 81 and 100. The differences between neighbours are "
        "3, 5, 7, 9, 11, 13, 15, 17 and 19, so each square is the one before it plus the next odd number."
    ),
    "science": (
        "Water expands when it freezes, because the molecules in ice arrange themselves in an open lattice that takes up "
        "more room than the liquid. This is why ice floats, why pipes burst in winter, and why a lake freezes from the "
        "top down, so that fish can survive below the surface until spring."
    ),
}
