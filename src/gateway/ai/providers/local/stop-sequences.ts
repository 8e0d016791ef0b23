// Stop sequences of the local models, searched in linear time.

import { searchText } from '../../../../kernel/text-search.ts';
import { unsupportedMember } from '../../hub/problems.ts';

/** The maximum number of stop sequences in one call. */
const maxStopSequences = 16;

/** Throws a 422 for more sequences than a local model searches for. */
export function checkStopSequences(stopSequences: readonly string[], modelId: string): void {
  if (stopSequences.length > maxStopSequences)
    throw unsupportedMember(
      'stop',
      `The model ${modelId} accepts at most ${maxStopSequences} stop sequences.`,
    );
}

/** The text before the first occurrence of any sequence. Empty sequences match nowhere. */
export function cutAtStops(text: string, stopSequences: readonly string[]): string {
  let shortestText = text;
  // A later sequence matters only if it begins before the cut of an earlier one.
  for (const stop of stopSequences) {
    const end = stop === '' ? -1 : searchText(text.slice(0, shortestText.length + stop.length), stop);
    if (end >= 0 && end < shortestText.length) shortestText = text.slice(0, end);
  }
  return shortestText;
}
