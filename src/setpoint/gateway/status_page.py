"""The status page: what is up, what is under way, what went wrong. Plain HTML without scripts; it renews itself."""

from typing import Any

from jinja2 import Environment

_TEMPLATE = Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Setpoint gateway</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #8884; }
td.n, th.n { text-align: right; } .up { color: #1a7f37; } .down { color: #cf222e; }
.loading, .stopped { color: #9a6700; }
p { margin: .2rem 0; color: #777; }
</style></head><body>
<h1>Setpoint gateway</h1>
<p>configuration {{ s.config }} · {{ s.workers }} worker processes · {{ s.in_flight }} requests under way ·
{{ s.waiting }} waiting · {{ s.connections }} connections · event loop at most {{ s.lag_ms }} ms late</p>
<h2>Replicas</h2>
<table><tr><th>model</th><th>replica</th><th>state</th><th class="n">under way</th><th class="n">queued tokens</th>
<th class="n">ejected for</th></tr>
{% for r in s.replicas %}<tr><td>{{ r.model }}</td><td>{{ r.name }}</td><td class="{{ r.state }}">{{ r.state }}</td>
<td class="n">{{ r.in_flight }} / {{ r.max_in_flight }}</td><td class="n">{{ r.queued_tokens }}</td>
<td class="n">{{ "%.0f s" % r.ejected_for_s if r.ejected_for_s else "none" }}</td></tr>{% endfor %}</table>
<h2>Last 24 hours</h2>
<table><tr><th>tenant</th><th>model</th><th>outcome</th><th class="n">requests</th><th class="n">prompt tokens</th>
<th class="n">of these cached</th><th class="n">completion tokens</th></tr>
{% for u in s.usage %}<tr><td>{{ u.tenant or "none" }}</td><td>{{ u.model or "none" }}</td><td>{{ u.outcome }}</td>
<td class="n">{{ u.requests }}</td><td class="n">{{ u.prompt_tokens }}</td><td class="n">{{ u.cached_tokens }}</td>
<td class="n">{{ u.completion_tokens }}</td></tr>{% else %}<tr><td colspan="7">no request yet</td></tr>{% endfor %}
</table></body></html>
""")


def page(status: dict[str, Any]) -> str:
    """The page of a status."""
    return _TEMPLATE.render(s=status)
