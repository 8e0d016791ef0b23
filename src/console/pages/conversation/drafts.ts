// Unsent text by conversation, in the session storage of this tab. It survives a change of page and a reload.
const prefix = 'townhall-draft-';

export function readDraft(name: string): string {
  try {
    return sessionStorage.getItem(prefix + name) ?? '';
  } catch {
    return '';
  }
}

export function writeDraft(name: string, text: string): void {
  try {
    if (text === '') sessionStorage.removeItem(prefix + name);
    else sessionStorage.setItem(prefix + name, text);
  } catch {
    // Storage is absent or full: the text stays in the composer only.
  }
}
