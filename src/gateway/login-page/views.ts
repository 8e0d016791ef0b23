// The views of the login page: sign in, e-mail code, registration, forgotten password, and the
// ends. Each replaces the content of the card.
export const views = `
function mark() {
  const initialLetter = [...bureau.name.trim()][0] || '?';
  return el('div', { className: 'mark', textContent: initialLetter.toUpperCase(), attributes: { 'aria-hidden': 'true' } });
}

function destination() {
  const { host } = new URL(app.redirectUri);
  return el('p', { className: 'lead' }, 'to continue to ', el('b', { textContent: host }));
}

function showView({ title, lead, error, children, links = [] }) {
  show([
    mark(), heading(title), lead, alertBox(error), ...children,
    links.length > 0 ? el('div', { className: 'links' }, ...links) : undefined,
  ], title);
}

function showSignIn(error) {
  const title = 'Sign in to ' + bureau.name;
  const parties = providers.filter(({ kind }) => kind === 'redirect');
  const [password, emailCode] = ['password', 'email_code'].map((id) => providers.find((provider) => provider.id === id));
  if (parties.length === 0 && !password && !emailCode)
    return showEnd(bureau.name + ' has no sign-in yet', 'Its operator has not set up a way to sign in here.');
  const partyButtons = parties.map(({ id, label }) => el('button', {
    type: 'button', className: 'other', textContent: 'Continue with ' + label, onclick: () => act(() => leaveFor(id)),
  }));
  const localForm = password ? passwordForm() : emailCode ? emailForm() : undefined;
  showView({
    title, lead: destination(), error,
    children: [
      partyButtons.length > 0 ? el('div', { className: 'others' }, ...partyButtons) : undefined,
      partyButtons.length > 0 && localForm ? el('div', { className: 'or', textContent: 'or' }) : undefined,
      localForm,
    ],
    links: [
      ...(password && emailCode ? [link('E-mail me a code instead', () => showEmail())] : []),
      ...(password ? [el('p', null, 'New here? ', link('Create an account', () => showRegistration()))] : []),
    ],
  });
}

function passwordForm() {
  return form({
    fields: [
      { name: 'email', type: 'email', label: 'E-mail address', required: true, value: email },
      { name: 'password', type: 'password', label: 'Password', required: true,
        aside: link('Forgot it?', () => showForgotten()) },
    ],
    button: 'Sign in',
    action: signInWithPassword,
  });
}

function emailForm() {
  return form({
    fields: [{ name: 'email', type: 'email', label: 'E-mail address', required: true, value: email }],
    button: 'Send me a code',
    action: sendCode,
  });
}

function rememberEmail() {
  const input = card.querySelector('input[name=email]');
  if (input && input.value !== '') email = input.value;
}

function showEmail() {
  rememberEmail();
  showView({
    title: 'Sign in with a code',
    lead: el('p', { className: 'lead', textContent: 'We send a code to your e-mail address. You need no password.' }),
    children: [emailForm()],
    links: [link('Back', () => showSignIn())],
  });
}

/** The view in which a code from an e-mail is entered. */
function showCode({ button, action, again, fields = [], title = 'Check your e-mail' }) {
  const lead = el('p', { className: 'lead' }, 'If the address can be used here, the code is on its way to ',
    el('b', { textContent: email }), '.');
  const code = { name: 'code', type: 'code', label: 'Code from the e-mail', required: true };
  showView({
    title, lead,
    children: [form({ fields: [code, ...fields], button, action })],
    links: [link('Send another code', again), link('Back', () => showSignIn())],
  });
}

const passwordHint = 'At least 12 characters.';

function showRegistration() {
  rememberEmail();
  showView({
    title: 'Create an account',
    lead: destination(),
    children: [form({
      fields: [
        { name: 'display_name', type: 'text', label: 'Your name (optional)', required: false },
        { name: 'email', type: 'email', label: 'E-mail address', required: true, value: email },
        { name: 'password', type: 'password', label: 'Password', required: true, completion: 'new-password', hint: passwordHint },
      ],
      button: 'Create account',
      action: register,
    })],
    links: [el('p', null, 'You have an account? ', link('Sign in', () => showSignIn()))],
  });
}

function showForgotten() {
  rememberEmail();
  showView({
    title: 'Set a new password',
    lead: el('p', { className: 'lead', textContent: 'We send a code to your e-mail address.' }),
    children: [form({
      fields: [{ name: 'email', type: 'email', label: 'E-mail address', required: true, value: email }],
      button: 'Send me a code',
      action: requestReset,
    })],
    links: [link('Back', () => showSignIn())],
  });
}

function showWait(text) {
  show([mark(), heading(text), el('p', { className: 'wait', textContent: 'One moment' })], text);
}

/** A view without a way on. */
function showEnd(title, text, detail) {
  show([
    el('div', { className: 'mark refusal', textContent: '!', attributes: { 'aria-hidden': 'true' } }), heading(title), el('p', { className: 'lead', textContent: text }),
    detail ? el('p', { className: 'hint detail', textContent: detail }) : undefined,
  ], title);
}
`;
