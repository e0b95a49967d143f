"""One address in front of many engines: route, admit, authenticate, meter, and judge every stream.

In: a configuration file and requests in OpenAI's or Anthropic's dialect. Out: answers, each judged before its end is
passed on; a journal line for each exchange, from which usage, metrics and the access log are made. Worker processes
share one port and one table of memory; the supervisor keeps them running and serves the administrative address.
"""
