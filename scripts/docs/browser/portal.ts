// The portal's script for browsers: search, the list of pages on a small screen, copying code. The
// search index is a file beside it, loaded as a script when a search begins, so that it also works
// from a disk.

import MiniSearch from 'minisearch';
import { followSections } from './contents.ts';
import { activateRequestForm } from './request-form.ts';
import { activateSamples } from './samples.ts';
import { type SearchEntry, searchOptions } from './search-options.ts';
import { activateTheme } from './theme.ts';

declare global {
  // search-index.js sets it.
  var townhallSearch: string | undefined;
}

const self = document.currentScript as HTMLScriptElement;
const root = self.dataset['root'] ?? './';
const field = document.querySelector<HTMLInputElement>('#search');
const list = document.querySelector<HTMLUListElement>('#results');
let loadingSearch: Promise<MiniSearch<SearchEntry>> | undefined;
let selectedIndex = -1;

/** Loads the index once; after a failure, which gives null, the next call tries again. */
async function loadIndex(): Promise<MiniSearch<SearchEntry> | null> {
  loadingSearch ??= loadScript(`${root}search-index.js`).then(() =>
    MiniSearch.loadJSON<SearchEntry>(globalThis.townhallSearch ?? '', searchOptions),
  );
  try {
    return await loadingSearch;
  } catch {
    loadingSearch = undefined;
    return null;
  }
}

function loadScript(address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = address;
    script.addEventListener('load', () => resolve());
    script.addEventListener('error', () => reject(new Error(`${address} cannot be loaded.`)));
    document.head.append(script);
  });
}

async function search(): Promise<void> {
  if (!field || !list) return;
  const words = field.value.trim();
  const index = await loadIndex();
  // The text may have changed while the index was loading.
  if (words !== field.value.trim()) return;
  const matches = index === null ? [] : findMatches(index, words);
  selectedIndex = matches.length > 0 ? 0 : -1;
  list.replaceChildren(
    ...matches.map((match, position) => resultItem(match as unknown as SearchEntry, position)),
  );
  if (words !== '' && matches.length === 0) {
    list.append(index === null ? failureNote() : emptyNote(words));
  }
  show(words !== '');
  choose(selectedIndex);
}

/** Entries that match all words. If there is none, entries that match any of the words. */
function findMatches(index: MiniSearch<SearchEntry>, words: string) {
  if (words === '') return [];
  const matchesOfAllWords = index.search(words);
  const matches =
    matchesOfAllWords.length > 0 ? matchesOfAllWords : index.search(words, { combineWith: 'OR' });
  return matches.slice(0, 12);
}

function resultItem({ address, title, page, excerpt }: SearchEntry, position: number): HTMLLIElement {
  const item = document.createElement('li');
  item.id = `found-${position}`;
  item.setAttribute('role', 'option');
  const link = document.createElement('a');
  link.href = `${root}${address}`;
  link.tabIndex = -1;
  const titleElement = document.createElement('strong');
  titleElement.textContent = title;
  const location = document.createElement('span');
  location.textContent = `${page} · ${excerpt}`;
  link.append(titleElement, location);
  item.append(link);
  return item;
}

function failureNote(): HTMLLIElement {
  return note('The search index cannot be loaded. Check the connection and type again.');
}

/** Says that the words have no match, and links to the overviews. */
function emptyNote(words: string): HTMLLIElement {
  const item = note(`No page has “${words}”. Try another word, or look through:`);
  for (const [index, { title, page }] of overviews.entries()) {
    const link = document.createElement('a');
    link.href = `${root}${page}`;
    link.textContent = title;
    item.append(...(index === 0 ? [link] : [' · ', link]));
  }
  return item;
}

function note(text: string): HTMLLIElement {
  const item = document.createElement('li');
  item.className = 'empty';
  const paragraph = document.createElement('p');
  paragraph.textContent = text;
  item.append(paragraph);
  return item;
}

const overviews = [
  { title: 'All guides', page: 'index.html#guides' },
  { title: 'All operations', page: 'operations/index.html' },
  { title: 'Error codes', page: 'guides/error-codes.html' },
];

function show(isOpen: boolean): void {
  if (!field || !list) return;
  list.hidden = !isOpen;
  field.setAttribute('aria-expanded', String(isOpen));
}

function choose(position: number): void {
  selectedIndex = position;
  const entries = [...(list?.querySelectorAll('li[role="option"]') ?? [])];
  for (const [index, entry] of entries.entries())
    entry.setAttribute('aria-selected', String(index === position));
  if (position >= 0) {
    field?.setAttribute('aria-activedescendant', `found-${position}`);
    entries[position]?.scrollIntoView({ block: 'nearest' });
  } else field?.removeAttribute('aria-activedescendant');
}

field?.addEventListener('focus', () => void loadIndex());
field?.addEventListener('input', () => void search());
field?.addEventListener('keydown', (event) => {
  const count = list?.querySelectorAll('li[role="option"]').length ?? 0;
  if (event.key === 'ArrowDown' && count > 0) choose((selectedIndex + 1) % count);
  else if (event.key === 'ArrowUp' && count > 0) choose((selectedIndex + count - 1) % count);
  else if (event.key === 'Enter' && selectedIndex >= 0)
    list?.querySelectorAll<HTMLAnchorElement>('li[role="option"] a')[selectedIndex]?.click();
  else if (event.key === 'Escape') {
    show(false);
    field.blur();
  } else return;
  event.preventDefault();
});
document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
  const isShortcut =
    (event.key === '/' && !isTyping) || (event.key === 'k' && (event.ctrlKey || event.metaKey));
  if (!isShortcut || !field) return;
  event.preventDefault();
  field.focus();
});
document.addEventListener('click', (event) => {
  if (!(event.target instanceof Node) || !field?.parentElement?.contains(event.target)) show(false);
  else if (event.target instanceof Element && event.target.closest('#results a')) show(false);
});

const menu = document.querySelector<HTMLButtonElement>('#menu');
menu?.addEventListener('click', () => {
  const isOpen = document.querySelector('#navigation')?.classList.toggle('open') ?? false;
  menu.setAttribute('aria-expanded', String(isOpen));
});

activateTheme();
activateSamples();
activateRequestForm();
followSections();

for (const block of document.querySelectorAll('pre:not(.output)')) {
  // A page opened from a disk has no access to the clipboard.
  if (!('clipboard' in navigator)) break;
  const button = document.createElement('button');
  button.className = 'copy';
  button.type = 'button';
  button.textContent = 'Copy';
  button.addEventListener('click', () => {
    navigator.clipboard.writeText(block.querySelector('code')?.textContent ?? '').then(
      () => (button.textContent = 'Copied'),
      () => (button.textContent = 'Not copied'),
    );
  });
  block.append(button);
}
