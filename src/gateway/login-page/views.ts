// The views of the login page: sign in, e-mail code, registration, forgotten password, waiting, and the final
// view. Each replaces the content of the card.
export const views = `
function mark() {
  const attributes = { 'aria-hidden': 'true' };
  return el('div', { className: 'mark', textContent: initialOf(bureau.name), attributes });
}

function destination() {
  const { host } = new URL(app.redirectUri);
  return el('p', { className: 'lead' }, 'to continue to ', el('b', { textContent: host }));
}

/** Isolates a Bureau's text, so that its writing direction does not affect the text around it. */
function isolated(text) { return el('bdi', { textContent: text }); }

function showView({ title, heading: head = [title], lead, error, notice, children, links = [] }) {
  show([
    mark(), heading(...head), lead, alertBox('view-error', error),
    notice
      ? el('p', { className: 'notice', textContent: notice, attributes: { role: 'status' } })
      : undefined,
    ...children,
    links.length > 0 ? el('div', { className: 'links' }, ...links) : undefined,
  ], title);
}

function showSignIn(error) {
  const title = 'Sign in to ' + bureau.name;
  const [password, emailCode, local] = ['password', 'email_code', 'local']
    .map((id) => providers.find((provider) => provider.id === id));
  const parties = providers.filter(({ kind }) => kind === 'redirect');
  const codeForm = emailCode ? emailForm() : undefined;
  const mainForm = password ? passwordForm() : codeForm;
  const buttons = [
    ...parties.map(({ id, label }) => actionButton('Continue with ' + label, () => leaveFor(id))),
    ...(local ? [actionButton('Continue as the local user', () => signInAsLocalUser())] : []),
  ];
  if (buttons.length === 0 && !mainForm)
    return showEnd(bureau.name + ' has no sign-in yet', 'Its operator has not set up a way to sign in here.');
  if (!mainForm) buttons[0].className = 'main';
  showView({
    title, heading: ['Sign in to ', isolated(bureau.name)], lead: destination(), error,
    children: [
      buttons.length > 0 ? el('div', { className: 'others' }, ...buttons) : undefined,
      local
        ? el('p', { className: 'hint', textContent: 'Works without a password, on this machine only.' })
        : undefined,
      buttons.length > 0 && mainForm ? el('div', { className: 'or', textContent: 'or' }) : undefined,
      mainForm,
    ],
    links: [
      ...(password && emailCode ? [link('E-mail me a code instead', () => showEmail())] : []),
      ...(password ? [el('p', null, 'New here? ', link('Create an account', () => showRegistration()))] : []),
    ],
  });
}

function actionButton(text, action) {
  return el('button', { type: 'button', className: 'other', textContent: text, onclick: () => act(action) });
}

function passwordForm() {
  return form({
    fields: [
      { name: 'email', type: 'email', label: 'E-mail address', required: true, value: email },
      { name: 'password', type: 'password', label: 'Password', required: true,
        after: el('p', { className: 'after' }, link('Forgot your password?', () => showForgotten())) },
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
    lead: el('p', {
      className: 'lead', textContent: 'We send a code to your e-mail address. You do not need a password.',
    }),
    children: [emailForm()],
    links: [link('Back', () => showSignIn())],
  });
}

/** The view in which a code from an e-mail is entered, with a button that sends another one. */
function showCode({ button, action, again, notice, fields = [], username, title = 'Check your e-mail' }) {
  const lead = el('p', { className: 'lead' }, 'If the address can be used here, the code is on its way to ',
    el('b', { textContent: email }), '.');
  const code = {
    name: 'code', type: 'code', label: 'Code from the e-mail', required: true,
    hint: 'Valid for 10 minutes. If no e-mail arrives, look in your spam folder.',
  };
  showView({
    title, lead, notice,
    children: [form({ fields: [code, ...fields], button, action, username })],
    links: [link('Send another code', again), link('Back', () => showSignIn())],
  });
}

const codeSentNotice = 'We have sent another code. Earlier codes no longer work.';

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
        {
          name: 'password', type: 'password', label: 'Password', required: true,
          completion: 'new-password', hint: passwordHint,
        },
      ],
      button: 'Create account',
      action: register,
    })],
    links: [el('p', null, 'Already have an account? ', link('Sign in', () => showSignIn()))],
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

/** The final view, which has no next step. */
function showEnd(title, text, detail) {
  show([
    el('div', { className: 'mark refusal', textContent: '!', attributes: { 'aria-hidden': 'true' } }),
    heading(title),
    el('p', { className: 'lead', textContent: text }),
    detail ? el('p', { className: 'hint detail', textContent: detail }) : undefined,
  ], title);
}
`;
