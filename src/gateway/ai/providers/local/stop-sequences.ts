// Where an answer ends: the first stop sequence in it, searched in time linear in the text.

import { searchText } from '../../../../kernel/text-search.ts';

/** Stop sequences of one call. */
export const maximumStops = 16;

/** The text before the first occurrence of any of the sequences. Empty sequences match nowhere. */
export function cutAtStops(text: string, stops: readonly string[]): string {
  let shortest = text;
  // Within a text that an earlier sequence has cut, a later one matters only if it ends before that cut.
  for (const stop of stops) {
    const end = stop === '' ? -1 : searchText(text.slice(0, shortest.length + stop.length), stop);
    if (end >= 0 && end < shortest.length) shortest = text.slice(0, end);
  }
  return shortest;
}
