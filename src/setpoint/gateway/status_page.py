"""The status page: what is up, what is under way, what went wrong. Plain HTML without scripts; it renews itself."""

from typing import Any

from jinja2 import Environment

_TEMPLATE = Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Setpoint gateway</title>
<style>
:root { color-scheme: light dark; --dim: #5c5c5c; --up: #1a7f37; --down: #c01c28; --loading: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --dim: #a8a8a8; --up: #57c478; --down: #ff7b72; --loading: #e3b341; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
th:last-child, td:last-child { padding-right: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
th { font-weight: 600; white-space: nowrap; } th, p { color: var(--dim); } p { margin: .2rem 0; }
.up { color: var(--up); } .down { color: var(--down); } .loading, .stopped { color: var(--loading); }
span { white-space: nowrap; } span + span::before { content: " · "; white-space: normal; }
@media (max-width: 48rem) {
  tr:has(th) { display: none; } td, td.n { display: flex; justify-content: space-between; gap: 1rem; border: 0;
  padding: .05rem 0; text-align: right; } td::before { content: attr(data-is); color: var(--dim); white-space: nowrap; }
  tr { display: block; border-bottom: 1px solid #8884; padding: .4rem 0; }
  td.empty { display: block; text-align: left; }
}
</style></head><body>
<h1>Setpoint gateway</h1>
<p><span>configuration {{ s.config }}</span> <span>{{ s.workers }} worker processes</span>
<span>{{ n(s.in_flight) }} requests under way</span> <span>{{ n(s.waiting) }} waiting</span>
<span>{{ n(s.connections) }} connections</span> <span>event loop at most {{ s.lag_ms }} ms late</span></p>
<h2>Replicas</h2>
<table><tr><th>model</th><th>replica</th><th>state</th><th class="n">under way</th><th class="n">queued tokens</th>
<th class="n">ejected for</th></tr>
{% for r in s.replicas %}<tr><td data-is="model">{{ r.model }}</td><td data-is="replica">{{ r.name }}</td>
<td data-is="state" class="{{ r.state }}">{{ r.state }}</td>
<td data-is="under way" class="n">{{ n(r.in_flight) }} / {{ n(r.max_in_flight) }}</td>
<td data-is="queued tokens" class="n">{{ n(r.queued_tokens) }}</td>
<td data-is="ejected for" class="n">{{ "%.0f s" % r.ejected_for_s if r.ejected_for_s else "not ejected" }}</td></tr>
{% endfor %}</table>
<h2>Last 24 hours</h2>
<table><tr><th>tenant</th><th>model</th><th>outcome</th><th class="n">requests</th><th class="n">prompt tokens</th>
<th class="n">of these cached</th><th class="n">completion tokens</th></tr>
{% for u in s.usage %}<tr><td data-is="tenant">{{ u.tenant or "not identified" }}</td>
<td data-is="model">{{ u.model or "none" }}</td><td data-is="outcome">{{ u.outcome.replace("_", " ") }}</td>
<td data-is="requests" class="n">{{ n(u.requests) }}</td>
<td data-is="prompt tokens" class="n">{{ n(u.prompt_tokens) }}</td>
<td data-is="of these cached" class="n">{{ n(u.cached_tokens) }}</td>
<td data-is="completion tokens" class="n">{{ n(u.completion_tokens) }}</td></tr>
{% else %}<tr><td colspan="7" class="empty">no request yet</td></tr>{% endfor %}
</table></body></html>
""")


def page(status: dict[str, Any]) -> str:
    """The page of a status."""
    return _TEMPLATE.render(s=status, n=_grouped)


def _grouped(count: int) -> str:
    return f"{count:,}".replace(",", "\N{THIN SPACE}")
