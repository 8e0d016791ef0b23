// Creates the elements of the pages. Text is always set as text; nothing here accepts markup.

export type Child = Node | string | number | null | undefined | false | readonly Child[];
type Attributes = Readonly<Record<string, unknown>>;

/**
 * Creates an element. Attributes that are null, undefined or false are omitted; functions become
 * listeners (`onclick`).
 */
export function h<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(key.slice(2), value as EventListener);
    else if (key === 'value' || key === 'checked') Object.assign(element, { [key]: value });
    else element.setAttribute(key, value === true ? '' : String(value as string | number));
  }
  append(element, children);
  return element;
}

function append(element: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child as readonly Child[]);
    else element.append(child instanceof Node ? child : String(child as string | number));
  }
}

/** Replaces the children. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

const shownKeys = new WeakMap<Element, string>();

/**
 * Like `fill`, but only when `key` has changed. Focus within the element moves to the control of
 * the same name among the new children, else to the composer or the content of the page.
 */
export function fillWhenChanged(element: HTMLElement, key: unknown, make: () => Child): void {
  const text = JSON.stringify(key) ?? '';
  if (shownKeys.get(element) === text) return;
  shownKeys.set(element, text);
  const name = focusName(element);
  fill(element, make());
  if (name === null) return;
  const successor = [...element.querySelectorAll<HTMLElement>(focusableSelector)].find(
    (control) => nameOf(control) === name,
  );
  if (successor === undefined) focusHome();
  else successor.focus({ preventScroll: true });
}

const focusableSelector = 'a[href], button, input, select, textarea, summary, [tabindex]';

function focusName(element: Element): string | null {
  const { activeElement } = document;
  return activeElement !== null && activeElement !== element && element.contains(activeElement)
    ? nameOf(activeElement)
    : null;
}

function nameOf(control: Element): string {
  const label = control.getAttribute('aria-label') ?? control.textContent;
  return control.id || `${control.tagName} ${control.getAttribute('href') ?? label.slice(0, 100)}`;
}

/** Moves focus of a removed element to the composer or the content. */
export function focusHome(): void {
  const home =
    document.querySelector<HTMLElement>('#composer') ?? document.querySelector<HTMLElement>('#main');
  home?.focus({ preventScroll: true });
}

/** Scrolls the current entry of a list into view. */
export function showCurrent(list: Element): void {
  list.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

/**
 * Replaces invisible characters that change the display, such as direction marks, with their codes.
 */
export function showControls(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu,
    codeOf,
  );
}

/**
 * Like `showControls`, but only for characters that reorder the text around them; joiners that some
 * scripts need stay.
 */
export function showOverrides(text: string): string {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, codeOf);
}

function codeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

/** A button that ignores presses while its action runs. */
export function button(
  label: Child,
  onPress: () => Promise<void> | void,
  attributes: Attributes = {},
): HTMLButtonElement {
  const element = h('button', { type: 'button', ...attributes }, label);
  element.addEventListener('click', () => {
    if (element.getAttribute('aria-disabled') === 'true') return;
    // Not `disabled`, which would remove the focus.
    element.setAttribute('aria-busy', 'true');
    element.setAttribute('aria-disabled', 'true');
    void Promise.resolve()
      .then(onPress)
      .finally(() => {
        element.removeAttribute('aria-busy');
        element.removeAttribute('aria-disabled');
      });
  });
  return element;
}

/** A colored label of a state. */
export function pill(text: string, tone: 'good' | 'busy' | 'bad' | 'wait' | 'plain' = 'plain'): HTMLElement {
  return h('span', { class: `pill ${tone}` }, text);
}

/** The placeholder of an empty list or page. */
export function emptyState(title: string, ...rest: Child[]): HTMLElement {
  return h('div', { class: 'empty' }, h('h2', {}, title), ...rest);
}

/** A value as readable JSON, with invisible characters shown. */
export function json(value: unknown): HTMLElement {
  return h(
    'pre',
    { class: 'json', tabindex: '0' },
    showControls(typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '')),
  );
}

/** A text such as `3 min ago`, with the exact time as its title. */
export function elapsedTime(time: string): HTMLElement {
  const element = h('time', { datetime: time, title: new Date(time).toLocaleString() });
  element.textContent = agoText(time);
  return element;
}

export function agoText(time: string): string {
  const seconds = Math.round((Date.now() - Date.parse(time)) / 1000);
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return new Date(time).toLocaleDateString();
}
