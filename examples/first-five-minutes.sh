#!/bin/sh
# The first five minutes with curl, beside a running local edition. The tokens are in its data folder;
# TOWNHALL_URL, AGENT_URL, TOKEN and AGENT override them.
set -eu
GATEWAY=${TOWNHALL_URL:-http://127.0.0.1:43127}
LOCAL_AGENT=${AGENT_URL:-http://127.0.0.1:5314}
TOKEN=${TOKEN:-$(cat data/local.token)}
AGENT=${AGENT:-$(cat data/agent/agent.token)}

# #region health
curl "$GATEWAY/health"
# #endregion
echo

# #region models
curl "$GATEWAY/v1/ai/models" -H "Authorization: Bearer $TOKEN"
# #endregion
echo

# #region text
curl "$GATEWAY/v1/ai/text" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d '{"model": "local/guide", "prompt": "How do I add a model provider?"}'
# #endregion
echo

# #region stream
curl -N "$GATEWAY/v1/ai/chat/completions" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d '{"model": "local/guide", "stream": true, "messages": [{"role": "user", "content": "How do I log in?"}]}'
# #endregion
echo

# #region execute
curl "$LOCAL_AGENT/api/execute" -H "Authorization: Bearer $AGENT" -H 'Content-Type: application/json' \
  -d '{"instructions": "How do I stream an answer?"}'
# #endregion
echo
