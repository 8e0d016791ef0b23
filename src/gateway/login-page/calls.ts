// The part of the pages' scripts that calls the server.
export const calls = `
// The autocomplete value of an input by its name.
const completions = {
  email: 'username', password: 'current-password', code: 'one-time-code', display_name: 'name',
};

/** Calls an operation of accounts and returns its answer. Throws an Error whose message is for the person. */
async function call(path, body, token = '') {
  const headers = token === '' ? {} : { authorization: 'Bearer ' + token };
  const options = body === undefined ? { headers } : {
    method: 'POST', body: JSON.stringify(body), headers: { ...headers, 'content-type': 'application/json' },
  };
  const answer = await fetch('v1/accounts/' + path, { ...options, signal: AbortSignal.timeout(20000) })
    .catch(() => { throw new Error('The server does not answer. Check your connection and try again.'); });
  const value = await answer.json().catch(() => ({}));
  if (answer.ok) return value;
  const status = 'The server answered ' + answer.status + '.';
  const { code = '', param = null, message = status } = value.error || {};
  const waitSeconds = Number(answer.headers.get('retry-after'));
  const isLimited = answer.status === 429 && waitSeconds > 0;
  const minutes = Math.ceil(waitSeconds / 60);
  const pause = minutes > 1 ? minutes + ' minutes' : 'a minute';
  const text = isLimited ? 'There were too many attempts. Try again in ' + pause + '.' : message;
  throw Object.assign(new Error(text), { code, param, status: answer.status });
}
`;
