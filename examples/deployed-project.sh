#!/bin/sh
# Calls to a project that "townhall init" made and "townhall deploy" brought into service on this machine.
# TOWNHALL_URL says where it serves when that is elsewhere.
set -eu
CITY=${TOWNHALL_URL:-http://127.0.0.1:43127}

# #region guest
curl "$CITY/v1/hello/world"
# #endregion

# #region token
LOGIN=$(curl -s "$CITY/v1/accounts/login/start" -H 'Content-Type: application/json' \
  -d '{"provider": "local", "bureau_id": "local"}' | sed 's/.*"login_id":"\([^"]*\)".*/\1/')
TOKEN=$(curl -s "$CITY/v1/accounts/login/result?login_id=$LOGIN" | sed 's/.*"user_token":"\([^"]*\)".*/\1/')
# #endregion

# #region user
curl "$CITY/v1/hello/me" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d '{"greeting": "Good morning"}'
# #endregion
