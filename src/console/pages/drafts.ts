// Text that no agent has accepted yet, by the conversation that it was written in. It survives a change of room and a
// reload, in the storage of this tab alone.
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
    // A browser without storage, or with a full one: the text stays in the composer alone.
  }
}
