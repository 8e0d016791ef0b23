// Stop sequences of the local models, searched in linear time.

import { searchText } from '../../../../kernel/text-search.ts';

/** Per call. */
export const maxStopSequences = 16;

/** The text before the first occurrence of any sequence. Empty sequences match nowhere. */
export function cutAtStops(text: string, stops: readonly string[]): string {
  let shortest = text;
  // A later sequence matters only if it begins before the cut of an earlier one.
  for (const stop of stops) {
    const end = stop === '' ? -1 : searchText(text.slice(0, shortest.length + stop.length), stop);
    if (end >= 0 && end < shortest.length) shortest = text.slice(0, end);
  }
  return shortest;
}
