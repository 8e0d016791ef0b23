// The button for light or dark colors. Without a choice the page follows the system. Redoc stores
// its choice under the same name, so the reference pages follow too.

const storageKey = 'redoc.colorMode';

export function activateTheme(): void {
  const button = document.querySelector<HTMLButtonElement>('#theme');
  if (!button) return;
  const { documentElement: root } = document;
  const system = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => (root.dataset['theme'] ?? (system.matches ? 'dark' : 'light')) === 'dark';
  const show = () => button.setAttribute('aria-pressed', String(isDark()));
  button.addEventListener('click', () => {
    const mode = isDark() ? 'light' : 'dark';
    root.dataset['theme'] = mode;
    store(mode);
    show();
  });
  system.addEventListener('change', show);
  show();
  button.hidden = false;
}

// Without storage, as on a page from a disk, the choice ends with the page.
function store(mode: string): void {
  try {
    localStorage.setItem(storageKey, mode);
  } catch {
    return;
  }
}
