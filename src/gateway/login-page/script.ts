// The script of the login page: it reads the app's request from its address, logs the person in
// with the operations of the contract, and sends the browser back with a one-time code. The page
// never holds a user token.
export const script = `
// The key under which this tab stores a login attempt at a third party until the browser returns.
const storageKey = 'townhall-login';
let app;
let bureau;
let providers = [];
let email = '';

// The formats that accounts.issueLoginCode accepts. The page calls it only after the login, so it checks
// these members before.
const rules = { code_challenge: /^[A-Za-z0-9_-]{43}$/, state: /^[!-~]{1,512}$/ };

/** What is wrong with the app's request; undefined for a valid request. */
function requestError(query) {
  const missing = ['client_id', 'redirect_uri', 'code_challenge', 'state'].filter((name) => !query.get(name));
  if (missing.length > 0) return 'Missing from the address: ' + missing.join(', ');
  const type = query.get('response_type') || 'code';
  const method = query.get('code_challenge_method') || 'S256';
  if (type !== 'code' || method !== 'S256')
    return 'The address asks for something other than a code with PKCE (S256).';
  const invalidNames = Object.keys(rules).filter((name) => !rules[name].test(query.get(name)));
  if (!URL.canParse(query.get('redirect_uri'))) invalidNames.push('redirect_uri');
  return invalidNames.length > 0 ? 'Not valid in the address: ' + invalidNames.join(', ') : undefined;
}

function readRequest(search) {
  const query = new URLSearchParams(search);
  const detail = requestError(query);
  if (detail !== undefined)
    throw Object.assign(new Error('Open this page from the app that you want to sign in to.'), { detail });
  email = email || query.get('login_hint') || '';
  return {
    bureauId: query.get('client_id'), redirectUri: query.get('redirect_uri'),
    challenge: query.get('code_challenge'), state: query.get('state'), screen: query.get('screen'),
  };
}

async function loadBureau() {
  const query = new URLSearchParams({ bureau_id: app.bureauId, redirect_uri: app.redirectUri });
  ({ bureau, items: providers } = await call('providers?' + query));
  if (bureau.color) applyColorAlways(bureau.color);
}

function start(provider, more) { return call('login/start', { provider, bureau_id: app.bureauId, ...more }); }

/** The login without credentials of a local edition. */
async function signInAsLocalUser() {
  const { login_id: loginId } = await start('local');
  await returnToApp({ login_id: loginId });
}

async function signInWithPassword(input) {
  email = input.email;
  const { login_id: loginId } = await start('password');
  await call('login/continue', { login_id: loginId, input });
  await returnToApp({ login_id: loginId });
}

async function sendCode(input, notice) {
  email = input.email;
  const { login_id: loginId } = await start('email_code');
  await call('login/continue', { login_id: loginId, input: { email } });
  showCode({
    button: 'Sign in', notice,
    again: () => sendCode({ email }, codeSentNotice),
    action: async ({ code }) => {
      await call('login/continue', { login_id: loginId, input: { code } }).catch(explainSpent);
      await returnToApp({ login_id: loginId });
    },
  });
}

/**
 * Rethrows the error. An attempt that has ended cannot take another input, so its error asks for a new code.
 */
function explainSpent(error) {
  if (error.code === 'login_spent' || error.code === 'login_not_found')
    throw Object.assign(
      new Error('This code has expired or was entered too often. Send another code.'), { code: error.code });
  throw error;
}

async function register(input, notice) {
  email = input.email;
  const { verification_id: id } = await call('register', { bureau_id: app.bureauId, ...input });
  showCode({
    button: 'Finish', notice,
    again: () => register(input, codeSentNotice),
    action: async ({ code }) => {
      await call('verify', { verification_id: id, code });
      await signInWithPassword({ email: input.email, password: input.password });
    },
  });
}

async function requestReset(input, notice) {
  email = input.email;
  const { verification_id: id } = await call('password/forgot', { bureau_id: app.bureauId, email });
  showCode({
    title: 'Set a new password',
    button: 'Set password and sign in', notice, username: email,
    again: () => requestReset({ email }, codeSentNotice),
    fields: [{
      name: 'password', type: 'password', label: 'New password', required: true,
      completion: 'new-password', hint: passwordHint,
    }],
    action: async ({ code, password }) => {
      await call('password/reset', { verification_id: id, code, password });
      await signInWithPassword({ email, password });
    },
  });
}

const base64Url = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)))
  .replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');

/** Sends the browser to a third party. A verifier that never leaves this tab binds the attempt to the tab. */
async function leaveFor(provider) {
  if (!window.isSecureContext) throw new Error('This sign-in needs https.');
  const verifier = base64Url(crypto.getRandomValues(new Uint8Array(32)));
  const challenge = base64Url(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier)));
  const redirectTo = location.origin + location.pathname;
  const startedLogin = await start(provider, { redirect_to: redirectTo, code_challenge: challenge });
  const attempt = { loginId: startedLogin.login_id, verifier, search: location.search };
  sessionStorage.setItem(storageKey, JSON.stringify(attempt));
  location.assign(startedLogin.url);
}

/**
 * Gets the code for the app and sends the browser there. It replaces this page in the history, so that Back
 * does not return to it.
 */
async function returnToApp(login) {
  const { redirectUri, challenge, state } = app;
  const request = { ...login, redirect_uri: redirectUri, code_challenge: challenge, state };
  const { url } = await call('login/code', request);
  showWait('You are signed in');
  location.replace(url);
}

const refusals = {
  login_denied: 'The sign-in was cancelled.',
  user_blocked: 'This account is blocked.',
  upstream_failed: 'The other service failed. Try again.',
  upstream_timeout: 'The other service did not answer in time. Try again.',
};

/** Reads the result of a login at a third party and removes it from the address; undefined without one. */
function readReturn() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const [code, refusal] = [fragment.get('login_code'), fragment.get('login_error')];
  if (code === null && refusal === null) return undefined;
  const storedLogin = JSON.parse(sessionStorage.getItem(storageKey) || 'null');
  sessionStorage.removeItem(storageKey);
  history.replaceState(null, '', location.pathname + (storedLogin ? storedLogin.search : ''));
  // Without this tab's verifier, the result may belong to another person's login.
  if (!storedLogin)
    throw new Error('This sign-in was started elsewhere or is over. Start again from the app.');
  return { code, refusal, ...storedLogin };
}

async function main() {
  try {
    const loginReturn = readReturn();
    app = readRequest(location.search);
    await loadBureau();
    if (loginReturn && loginReturn.code !== null) {
      showWait('Signing you in');
      const login = {
        login_id: loginReturn.loginId, login_code: loginReturn.code, code_verifier: loginReturn.verifier,
      };
      return await returnToApp(login).catch((error) => showSignIn(error.message));
    }
    if (loginReturn) return showSignIn(refusals[loginReturn.refusal] || 'The sign-in failed. Try again.');
    const hasAccounts = providers.some(({ id }) => id === 'password');
    if (app.screen === 'register' && hasAccounts) return showRegistration();
    showSignIn();
  } catch (error) {
    const title = 'You cannot sign in here';
    if (error.param !== 'redirect_uri') return showEnd(title, error.message, error.detail);
    showEnd(title, 'This app is not registered for sign-in.',
      'Its address is not among the redirect_uris of the Bureau: ' + app.redirectUri);
  }
}

// Reload a page that the browser restores from its cache: its buttons are disabled and its attempt has ended.
addEventListener('pageshow', (event) => { if (event.persisted) location.reload(); });
main();
`;
