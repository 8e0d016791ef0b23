// Edits files whose comments begin with `#`, such as YAML and .env. Two comments enclose the lines of
// Townhall.
import { SettingError } from '../../../kernel/settings.ts';

const opening = '# >>> townhall connect';
const closing = '# <<< townhall connect';

/** The text with the block at its end, or below the line `after`. Replaces an earlier block. */
export function writeBlock(text: string, lines: readonly string[], after?: string): string {
  const rest = removeBlock(text);
  if (after === undefined || rest.trim() === '') {
    const head = after === undefined ? [] : [after];
    const gap = rest === '' || rest.endsWith('\n') ? '' : '\n';
    return `${rest}${gap}${[opening, ...head, ...lines, closing].join('\n')}\n`;
  }
  const place = rest.split('\n').findIndex((line) => line.trimEnd() === after);
  if (place < 0) throw new SettingError(`it has no line "${after}"; use --print and add the lines yourself.`);
  const all = rest.split('\n');
  // Items of a list have one indentation.
  const [indent = ''] = /^ *(?=- )/.exec(all.slice(place + 1).find((line) => /^ *- /.test(line)) ?? '') ?? [];
  const block = [opening, ...lines, closing].map((line) => indent + line);
  return [...all.slice(0, place + 1), ...block, ...all.slice(place + 1)].join('\n');
}

export function removeBlock(text: string): string {
  const lines = text.split('\n');
  const start = lines.findIndex((line) => line.trim() === opening);
  const end = lines.findIndex((line, index) => index > start && line.trim() === closing);
  if (start < 0 || end < 0) return text;
  return [...lines.slice(0, start), ...lines.slice(end + 1)].join('\n');
}
