// Edits files whose comments begin with `#`, such as YAML and .env. Townhall's lines are a block between
// two comments.
import { SettingError } from '../../../kernel/settings.ts';

const openingLine = '# >>> townhall connect';
const closingLine = '# <<< townhall connect';

/**
 * Returns the text with the block at its end, or below the line `afterLine`. Replaces an earlier block.
 * Throws a SettingError when the text has no such line.
 */
export function writeBlock(text: string, lines: readonly string[], afterLine?: string): string {
  const textWithoutBlock = removeBlock(text);
  if (afterLine === undefined || textWithoutBlock.trim() === '') {
    const head = afterLine === undefined ? [] : [afterLine];
    const gap = textWithoutBlock === '' || textWithoutBlock.endsWith('\n') ? '' : '\n';
    return `${textWithoutBlock}${gap}${[openingLine, ...head, ...lines, closingLine].join('\n')}\n`;
  }
  const fileLines = textWithoutBlock.split('\n');
  const precedingIndex = fileLines.findIndex((line) => line.trimEnd() === afterLine);
  if (precedingIndex < 0)
    throw new SettingError(`it has no line "${afterLine}"; use --print and add the lines yourself.`);
  const followingLines = fileLines.slice(precedingIndex + 1);
  // All items of a YAML list must have the same indentation.
  const firstItem = followingLines.find((line) => /^ *- /.test(line)) ?? '';
  const [indent = ''] = /^ *(?=- )/.exec(firstItem) ?? [];
  const block = [openingLine, ...lines, closingLine].map((line) => indent + line);
  return [...fileLines.slice(0, precedingIndex + 1), ...block, ...followingLines].join('\n');
}

export function removeBlock(text: string): string {
  const lines = text.split('\n');
  const start = lines.findIndex((line) => line.trim() === openingLine);
  const end = lines.findIndex((line, index) => index > start && line.trim() === closingLine);
  if (start < 0 || end < 0) return text;
  return [...lines.slice(0, start), ...lines.slice(end + 1)].join('\n');
}
