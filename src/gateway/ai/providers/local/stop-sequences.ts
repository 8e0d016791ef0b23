// Stop sequences of the local models, searched in linear time.

import { searchText } from '../../../../kernel/text-search.ts';

/** The maximum number of stop sequences in one call. */
export const maxStopSequences = 16;

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
