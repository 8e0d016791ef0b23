// The part of the login page's script that builds elements. Strings from the server are set as text, never as
// markup.
export const elements = `
const card = document.getElementById('card');

/** Creates an element with properties and children. A child is an element, a string or undefined. */
function el(tag, properties, ...children) {
  const { attributes = {}, ...rest } = properties || {};
  const element = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

function show(children, title) {
  card.setAttribute('aria-busy', 'false');
  card.replaceChildren(...children.filter((child) => child !== undefined));
  document.title = title;
  const firstElement = card.querySelector('input:not([hidden])') || card.querySelector('h1');
  if (firstElement) firstElement.focus();
}

function heading(...parts) { return el('h1', { tabIndex: -1 }, ...parts); }

function link(text, action) {
  return el('button', { type: 'button', className: 'link', textContent: text, onclick: () => act(action) });
}

/** Runs one action at a time. Shows its error in the box, which by default is the alert of the view. */
async function act(action, box) {
  const buttons = [...card.querySelectorAll('button')];
  if (buttons.some((button) => button.disabled)) return;
  for (const alert of card.querySelectorAll('[role=alert]')) alert.textContent = '';
  for (const input of card.querySelectorAll('[aria-invalid]')) {
    input.removeAttribute('aria-invalid');
    input.removeAttribute('aria-errormessage');
  }
  for (const button of buttons) button.disabled = true;
  try {
    await action();
  } catch (error) {
    for (const button of buttons) button.disabled = false;
    showError(error, box || card.querySelector('[role=alert]'));
  }
}

function alertBox(id, text = '') {
  return el('div', { id, textContent: text, attributes: { role: 'alert' } });
}

function showError(error, alert) {
  if (!alert) return showEnd('Something went wrong', error.message);
  const name = error.param ? error.param.replace('input.', '') : '';
  const field = [...card.querySelectorAll('input')].find((input) => input.name === name)
    || (error.code === 'invalid_credentials' ? card.querySelector('input.code, input[name=password]') : null);
  // The server's message starts with the member's name; the person knows the field by its label.
  const label = field && field.labels[0] ? field.labels[0].textContent : '';
  alert.textContent = label ? error.message.replace(/^\\x60[\\w.]+\\x60/, label) : error.message;
  if (!field) return;
  field.setAttribute('aria-invalid', 'true');
  field.setAttribute('aria-errormessage', alert.id);
  field.focus();
  field.select();
}

function field({ name, type, label, required, value = '', completion, hint, after }) {
  const id = 'input-' + name;
  const input = el('input', {
    id, name, required, value, autocomplete: completion || completions[name] || 'off', spellcheck: false,
    type: ['email', 'password'].includes(type) ? type : 'text', maxLength: 320,
  });
  if (type === 'code')
    Object.assign(input, {
      className: 'code', inputMode: 'numeric', autocapitalize: 'characters', maxLength: 20,
    });
  if (completion === 'new-password') input.minLength = 12;
  if (hint) input.setAttribute('aria-describedby', id + '-hint');
  return [
    el('label', { htmlFor: id, textContent: label }),
    type === 'password' ? el('div', { className: 'password' }, input, revealButton(input)) : input,
    hint ? el('p', { id: id + '-hint', className: 'hint', textContent: hint }) : undefined,
    after,
  ].filter((part) => part !== undefined);
}

function revealButton(input) {
  const button = el('button', {
    type: 'button', className: 'link', textContent: 'Show',
    attributes: { 'aria-label': 'Show the password', 'aria-pressed': 'false' },
    onclick: () => reveal(input.type === 'password'),
  });
  function reveal(isShown) {
    input.type = isShown ? 'text' : 'password';
    button.textContent = isShown ? 'Hide' : 'Show';
    button.setAttribute('aria-pressed', String(isShown));
  }
  return button;
}

/** A form whose action gets the inputs by name, without empty inputs. */
function form({ fields, button, action, username }) {
  const box = alertBox('form-error');
  // A password manager stores a new password under this name.
  const owner = username
    ? [el('input', { type: 'email', autocomplete: 'username', value: username, hidden: true })]
    : [];
  return el('form', {
    onsubmit: (event) => {
      event.preventDefault();
      const input = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ''));
      act(() => action(input), box);
    },
  }, box, ...owner, ...fields.flatMap(field), el('button', { className: 'main', textContent: button }));
}
`;
