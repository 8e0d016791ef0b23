// The samples on an operation's page: a tab for each language, and one token inserted into all of
// them.

const storageKey = 'townhall-sample-language';

/**
 * Shows one sample at a time, starting with the last chosen language. Without this script all of
 * them are visible.
 */
export function activateSamples(): void {
  const section = document.querySelector<HTMLElement>('.samples');
  if (!section) return;
  const tabs = [...section.querySelectorAll<HTMLButtonElement>('[role="tab"]')];
  const panels = [...section.querySelectorAll<HTMLElement>('[role="tabpanel"]')];
  const select = (position: number, hasFocus = false) => {
    for (const [index, tab] of tabs.entries()) {
      tab.setAttribute('aria-selected', String(index === position));
      tab.tabIndex = index === position ? 0 : -1;
      panels[index]?.toggleAttribute('hidden', index !== position);
    }
    if (hasFocus) tabs[position]?.focus();
    remember(tabs[position]?.textContent ?? '');
  };
  for (const [at, tab] of tabs.entries()) {
    tab.addEventListener('click', () => select(at));
    tab.addEventListener('keydown', ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (step !== undefined) select((at + step + tabs.length) % tabs.length, true);
    });
  }
  const storedTab = tabs.findIndex(({ textContent }) => textContent === recall());
  select(Math.max(0, storedTab));
  writeToken(section);
}

/** The token stays in the page's memory only; a reload discards it. */
function writeToken(section: HTMLElement): void {
  const field = section.querySelector<HTMLInputElement>('#token');
  if (!field) return;
  const marks = [...section.querySelectorAll<HTMLElement>('.token-mark')].map((mark) => ({
    mark,
    original: [...mark.childNodes],
  }));
  field.addEventListener('input', () => {
    // Characters of a token need no escaping in any of the languages.
    const token = field.value.trim().replaceAll(/[^\w.~+/=-]/g, '');
    for (const { mark, original } of marks) {
      const { quote = '', prefix = '' } = mark.dataset;
      if (token === '') mark.replaceChildren(...original);
      else mark.textContent = `${quote}${prefix}${token}${quote}`;
    }
  });
}

// Without storage, as on a page from a disk, the first language is shown.
function remember(language: string): void {
  try {
    localStorage.setItem(storageKey, language);
  } catch {
    return;
  }
}

function recall(): string | null {
  try {
    return localStorage.getItem(storageKey);
  } catch {
    return null;
  }
}
