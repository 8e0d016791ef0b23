// The header of warnings, for formats without a member for them.
import { describeWarning } from '../formats/text.ts';
import type { Warning } from '../hub/language-model.ts';

export const warningsHeader = 'x-townhall-warnings';
export const maxWarningsLength = 1000;

/** Empty without warnings. */
export function warningHeaders(warnings: readonly Warning[]): Record<string, string> {
  if (warnings.length === 0) return {};
  const headerText = warnings.map(describeWarning).join('; ');
  return { [warningsHeader]: headerText.replace(/[^\x20-\x7e]+/g, ' ').slice(0, maxWarningsLength) };
}
