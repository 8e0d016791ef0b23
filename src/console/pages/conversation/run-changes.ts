// What a run has changed in the files of the workspace, below its answer: the diffs, undo and redo. The
// changes are read when the reader opens them.
import type { RunChanges } from '@townhall/agent';
import { callConsole, runOrShowError, showError } from '../shared/console-client.ts';
import { button, fill, fillWhenChanged, h, pill, showControls } from '../shared/elements.ts';
import type { FileChanges } from './thread.ts';

export interface ChangesView {
  element: HTMLElement;
  /** Call it after an event about the files. */
  update(changes: FileChanges): void;
}

type FileDiff = RunChanges['files'][number];

export function createChangesView(sessionId: string, { runId, count }: FileChanges): ChangesView {
  const state = h('span', {});
  const list = h('div', { class: 'files' }, h('p', { class: 'quiet' }, 'Loading …'));
  const note = h('p', { class: 'quiet', role: 'status' });
  // One button, so that the focus stays on it when undo becomes redo.
  const action = button('Undo', press, { class: 'small', hidden: true });
  const title = count === 1 ? '1 file changed' : `${count} files changed`;
  const element = h(
    'details',
    { class: 'changes' },
    h('summary', {}, title, ' ', state),
    list,
    h('div', { class: 'row' }, action, note),
  );
  let status: RunChanges['status'] | undefined;
  let isShownUndone: boolean | null = null;

  function show(changes: RunChanges): void {
    ({ status } = changes);
    const isUndone = status === 'undone';
    fill(state, isUndone && pill('undone', 'wait'));
    // Undo and redo leave the diffs as they are, so opened files stay open.
    fillWhenChanged(list, changes.files, () =>
      changes.files.length === 0 ? nothingView() : changes.files.map(fileView),
    );
    drawAction(action, status);
  }

  async function read(): Promise<void> {
    show(await callConsole<RunChanges>('sessions.getChanges', { sessionId, runId }));
  }

  async function press(): Promise<void> {
    const operation = status === 'undone' ? 'sessions.redoRun' : 'sessions.undoRun';
    const isDone = await runOrShowError(() => callConsole(operation, { sessionId, runId }));
    note.textContent = isDone ? doneNotes[operation] : '';
    // If the operation has failed, its error stays visible even if reading fails as well.
    await read().catch((error: unknown) => isDone && showError(error));
  }

  element.addEventListener('toggle', () => {
    if (element.open && status === undefined)
      void runOrShowError(() => read().then(() => showOpened(element)));
  });
  // Captured, because `toggle` of the files inside does not bubble.
  element.addEventListener('toggle', ({ target }) => showOpened(target), { capture: true });
  return {
    element,
    update({ isUndone }) {
      if (isUndone === isShownUndone) return;
      isShownUndone = isUndone;
      fill(state, isUndone === true && pill('undone', 'wait'));
      // Not with runOrShowError: success must not hide the error of an operation that is shown meanwhile.
      if (element.open) read().catch(showError);
      else status = undefined;
    },
  };
}

/** Offers undo for changes that are applied, redo for undone changes, and nothing otherwise. */
function drawAction(action: HTMLButtonElement, status: RunChanges['status']): void {
  const isUndone = status === 'undone';
  action.textContent = isUndone ? 'Redo' : 'Undo';
  action.title = isUndone
    ? 'Makes the changes of this answer again'
    : 'Restores the files as they were before this answer';
  action.hidden = status !== 'applied' && !isUndone;
}

const doneNotes = {
  'sessions.redoRun': 'The changes were made again.',
  'sessions.undoRun': 'The files were restored.',
} as const;

// Details that open below the visible part of the log would be out of sight.
function showOpened(target: EventTarget | null): void {
  if (target instanceof HTMLDetailsElement && target.open) target.scrollIntoView({ block: 'nearest' });
}

function fileView({ path, change, additions, deletions, diff }: FileDiff): HTMLElement {
  const counts =
    additions === null || deletions === null
      ? null
      : h(
          'span',
          { class: 'counts' },
          h('span', { class: 'added' }, `+${additions}`),
          ' ',
          h('span', { class: 'removed' }, `−${deletions}`),
        );
  return h(
    'details',
    { class: 'file' },
    h(
      'summary',
      {},
      h('code', {}, showControls(path)),
      ' ',
      change !== 'changed' && [pill(change, change === 'created' ? 'good' : 'bad'), ' '],
      counts,
    ),
    diff === null
      ? h('p', { class: 'quiet' }, 'This file is not text, or is too large to show.')
      : diffView(path, diff),
  );
}

function diffView(path: string, diff: string): HTMLElement {
  const lines = diff.replace(/\n$/, '').split('\n');
  const first = lines.findIndex((line) => line.startsWith('@@'));
  // The summary shows the path already.
  const visibleLines = lines.filter((line, index) => index >= first || !/^(?:---|\+\+\+) /.test(line));
  return h(
    'pre',
    { class: 'diff', tabindex: '0', 'aria-label': `Changes of ${showControls(path)}` },
    visibleLines.map((line) => h('span', { class: `line ${toneOf(line)}` }, `${showControls(line)}\n`)),
  );
}

function toneOf(line: string): string {
  if (line.startsWith('@@')) return 'place';
  if (line.startsWith('+')) return 'added';
  return line.startsWith('-') ? 'removed' : 'same';
}

function nothingView(): HTMLElement {
  return h('p', { class: 'quiet' }, 'The changes of this answer are no longer kept.');
}
