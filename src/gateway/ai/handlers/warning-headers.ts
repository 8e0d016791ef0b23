// The header of warnings, for formats without a member for them.
import { describeWarning } from '../formats/text.ts';
import type { Warning } from '../hub/language-model.ts';

const maxLength = 1000;

/** Empty without warnings. */
export function warningHeaders(warnings: readonly Warning[]): Record<string, string> {
  if (warnings.length === 0) return {};
  const headerText = warnings.map(describeWarning).join('; ');
  return { 'x-townhall-warnings': headerText.replace(/[^\x20-\x7e]+/g, ' ').slice(0, maxLength) };
}
