// The script of the page on which a person confirms a device login. It calls the operations of the contract
// and keeps the person's token in memory only. Strings from the server are set as text, never as markup.
export const script = `
const byId = (id) => document.getElementById(id);
const bureauId = new URLSearchParams(location.search).get('bureau') || 'local';
const steps = ['code-step', 'login-step', 'browser-step', 'decide-step', 'end-step'];
let userCode = '';
let token = '';
let isOwnLogin = false;
let loginId = '';
let provider = '';
let providers = [];

function show(id) {
  for (const step of steps) byId(step).hidden = step !== id;
  byId('error').textContent = '';
  const target = byId(id).querySelector('input:not([hidden]), [autofocus], h2') || byId('title');
  target.focus();
}

function fail(error) { byId('error').textContent = error.message; }

/** Runs the form's action once at a time and shows its error. */
function onSubmit(id, action) {
  byId(id).addEventListener('submit', async (event) => {
    event.preventDefault();
    const buttons = [...event.target.querySelectorAll('button')];
    if (buttons.some((button) => button.disabled)) return;
    byId('error').textContent = '';
    for (const button of buttons) button.disabled = true;
    try { await action(new FormData(event.target), event.submitter); } catch (error) { fail(error); }
    for (const button of buttons) button.disabled = false;
  });
}

function setCode(text) {
  const letters = text.toUpperCase().replace(/[^A-Z]/g, '');
  if (letters.length !== 8) throw new Error('A code has eight letters, such as WDJB-MJHT.');
  userCode = letters.slice(0, 4) + '-' + letters.slice(4);
  for (const element of document.querySelectorAll('.code-shown:not(#compare)')) element.textContent = userCode;
}

/** Shows the name and the colour of the Bureau, and reads its login providers. */
async function loadBureau() {
  if (providers.length > 0) return;
  const { bureau, items } = await call('providers?bureau_id=' + encodeURIComponent(bureauId));
  providers = items;
  byId('mark').textContent = initialOf(bureau.name);
  const name = Object.assign(document.createElement('bdi'), { textContent: bureau.name });
  byId('bureau').replaceChildren('at ', name);
  for (const id of ['mark', 'bureau']) byId(id).hidden = false;
  if (bureau.color) applyColorAlways(bureau.color);
}

async function startSignIn() {
  await loadBureau();
  const choice = byId('provider');
  const options = providers.map(({ id, label }) => new Option(label, id));
  choice.replaceChildren(...options, new Option('A user token', ''));
  byId('provider-row').hidden = options.length === 0;
  show('login-step');
  chooseProvider();
}

function chooseProvider() {
  provider = byId('provider').value;
  loginId = '';
  const choice = providers.find(({ id }) => id === provider);
  const tokenInput = { name: 'token', type: 'password', label: 'Your user token', required: true };
  showInputs(choice ? choice.inputs : [tokenInput]);
}

function showInputs(inputs) {
  const rows = inputs.flatMap(({ name, type, label, required }) => {
    const title = document.createElement('label');
    const input = document.createElement('input');
    title.textContent = label;
    title.htmlFor = input.id = 'input-' + name;
    Object.assign(input, { name, required, autocomplete: completions[name] || 'off', spellcheck: false });
    input.type = ['email', 'password'].includes(type) ? type : 'text';
    if (name === 'code') input.inputMode = 'numeric';
    return [title, input];
  });
  byId('inputs').replaceChildren(...rows);
  const firstInput = byId('inputs').querySelector('input');
  if (firstInput && !byId('login-step').hidden) firstInput.focus();
}

async function signIn(form) {
  const input = Object.fromEntries([...form].filter(([name, value]) => name !== 'provider' && value !== ''));
  if (provider === '') {
    token = String(input.token || '').trim();
    isOwnLogin = false;
    return review();
  }
  if (loginId === '') {
    const startedLogin = await call('login/start', { provider, bureau_id: bureauId });
    loginId = startedLogin.login_id;
    if (startedLogin.outcome === 'redirect') return openBrowser(startedLogin);
    if (startedLogin.outcome === 'done') return finishSignIn();
  }
  let next;
  try {
    next = await call('login/continue', { login_id: loginId, input });
  } catch (error) {
    if (error.code === 'login_spent' || error.code === 'login_not_found') loginId = '';
    throw error;
  }
  if (next.outcome === 'input') return showInputs(next.inputs);
  return finishSignIn();
}

function openBrowser({ url, user_code: compare }) {
  byId('browser-link').href = url;
  byId('compare').textContent = compare || '';
  show('browser-step');
}

async function finishSignIn() {
  const result = await call('login/result?login_id=' + encodeURIComponent(loginId));
  if (result.status === 'pending') throw new Error('The login in the other tab is not finished yet.');
  loginId = '';
  if (result.status !== 'done') {
    await startSignIn();
    throw new Error('The login failed. Try again.');
  }
  token = result.user_token;
  isOwnLogin = true;
  return review();
}

async function review() {
  const reads = [call('me', undefined, token), call('device/get', { user_code: userCode }, token)];
  const [{ user }, login] = await Promise.all(reads)
    .catch((error) => {
      // After a wrong code, the person types the code again and stays signed in.
      if (error.code === 'login_not_found') show('code-step');
      else token = '';
      throw error;
    });
  const key = login.key;
  const dollars = (credits) => (credits / 1e6).toLocaleString('en', { style: 'currency', currency: 'USD' });
  const limits = key === undefined ? 'Acts as you, and can create keys' : [
    key.models ? 'models ' + key.models.join(', ') : 'all your models',
    key.credit_cap === undefined ? 'no limit except your balance' : 'at most ' + dollars(key.credit_cap),
  ].join('; ');
  const facts = {
    Program: login.name,
    Address: login.address,
    Requested: new Date(login.created_at).toLocaleString(),
    Access: key === undefined ? limits : 'An API key: ' + limits,
    'You are': user.email || user.display_name || user.user_id,
  };
  byId('facts').replaceChildren(...Object.entries(facts).flatMap(([name, value]) => {
    const [term, detail] = [document.createElement('dt'), document.createElement('dd')];
    term.textContent = name;
    detail.textContent = value;
    return [term, detail];
  }));
  show('decide-step');
}

async function decide(_form, button) {
  const decision = button && button.value === 'confirm' ? 'confirm' : 'cancel';
  await call('device/decide', { user_code: userCode, decision }, token);
  // Log out only after a refusal: a logout would also revoke the program's credential.
  if (decision === 'cancel' && isOwnLogin) await call('logout', {}, token).catch(() => {});
  token = '';
  byId('end-title').textContent = decision === 'confirm' ? 'Confirmed' : 'Refused';
  byId('end-text').textContent = decision === 'confirm'
    ? 'The program continues by itself. You can close this page.'
    : 'The program gets no access. You can close this page.';
  show('end-step');
}

onSubmit('code-form', (form) => {
  setCode(String(form.get('code')));
  return token === '' ? startSignIn() : review();
});
onSubmit('login-form', signIn);
onSubmit('browser-form', finishSignIn);
onSubmit('decide-form', decide);
byId('provider').addEventListener('change', chooseProvider);
byId('app').hidden = false;
if (location.hash.length > 1) {
  byId('code-input').value = location.hash.slice(1, 21);
  history.replaceState(null, '', location.pathname + location.search);
}
byId('code-input').focus();
loadBureau().catch(fail);
`;
