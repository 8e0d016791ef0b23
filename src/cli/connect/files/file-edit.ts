// A change to one file. Everything that the change does not name stays as it is.
import { SettingError } from '../../../kernel/settings.ts';
import { removeBlock, writeBlock } from './block-text.ts';
import {
  createdPath,
  memberText,
  memberValue,
  prependItem,
  removeItem,
  removeMember,
  restoreMember,
  setMember,
} from './json-text.ts';

export type FileEdit =
  | {
      kind: 'json';
      path: string;
      set: readonly { at: readonly string[]; value: unknown }[];
      /** Items put at the beginning of a list. */
      prepend?: readonly { at: readonly string[]; item: unknown }[];
    }
  /** Lines in a file with comments that begin with `#`; with `after`, below that line. */
  | { kind: 'block'; path: string; lines: readonly string[]; after?: string }
  /** A file that has no other content. */
  | { kind: 'file'; path: string; text: string };

/** One change of a JSON file, with what `--undo` needs. */
export type JsonChange =
  | {
      kind: 'set';
      at: readonly string[];
      value: unknown;
      /** The former text of the value. */
      former: string;
    }
  | {
      kind: 'create';
      at: readonly string[];
      value: unknown;
      /** The path of the outermost object or member that was missing. */
      created: readonly string[];
    }
  | { kind: 'prepend'; at: readonly string[]; item: unknown };

/** Returns the text of the file with the change. `text` is null when the file does not exist. */
export function applyEdit(edit: FileEdit, text: string | null): { text: string; changes: JsonChange[] } {
  try {
    if (edit.kind === 'file') return { text: edit.text, changes: [] };
    if (edit.kind === 'block') return { text: writeBlock(text ?? '', edit.lines, edit.after), changes: [] };
    return applyJson(edit, (text ?? '').trim() === '' ? '{}\n' : (text ?? ''));
  } catch (error) {
    throw error instanceof SettingError ? new SettingError(`${edit.path}: ${error.message}`) : error;
  }
}

function applyJson(edit: Extract<FileEdit, { kind: 'json' }>, originalText: string) {
  const changes: JsonChange[] = [];
  let text = originalText;
  for (const { at, item } of edit.prepend ?? []) {
    const missingPath = createdPath(text, at);
    const isMissing = memberText(text, at) === undefined;
    changes.push(
      isMissing ? { kind: 'create', at, value: [item], created: missingPath } : { kind: 'prepend', at, item },
    );
    text = prependItem(text, at, item);
  }
  for (const { at, value } of edit.set) {
    const formerText = memberText(text, at);
    changes.push(
      formerText === undefined
        ? { kind: 'create', at, value, created: createdPath(text, at) }
        : { kind: 'set', at, value, former: formerText },
    );
    text = setMember(text, at, value);
  }
  return { text, changes };
}

/**
 * Removes the lines or members of the edit from a file that has changed since. A member that has another
 * value by now is kept.
 */
export function revertEdit(kind: FileEdit['kind'], changes: readonly JsonChange[], text: string): string {
  if (kind === 'block') return removeBlock(text);
  return changes.toReversed().reduce((editedText, change) => {
    if (change.kind === 'prepend') return removeItem(editedText, change.at, change.item);
    if (JSON.stringify(memberValue(editedText, change.at)) !== JSON.stringify(change.value))
      return editedText;
    if (change.kind === 'set') return restoreMember(editedText, change.at, change.former);
    return removeCreated(editedText, change);
  }, text);
}

/** Removes the member, then each parent object that was created for it and is empty now. */
function removeCreated(
  text: string,
  { at, created }: { at: readonly string[]; created: readonly string[] },
): string {
  let editedText = removeMember(text, at);
  for (let length = at.length - 1; length >= created.length; length -= 1) {
    const parent = at.slice(0, length);
    if (JSON.stringify(memberValue(editedText, parent)) !== '{}') break;
    editedText = removeMember(editedText, parent);
  }
  return editedText;
}
