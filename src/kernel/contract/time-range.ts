// The members `from` and `to` of a query, which narrow a list to a time range.
import { invalidMember } from '../problem.ts';

/** Without a member, the range is open at that end. `to` is exclusive. */
export interface TimeRange {
  from: Date | undefined;
  to: Date | undefined;
}

/** Throws 400 when the range is empty. */
export function readTimeRange(query: { from?: string | undefined; to?: string | undefined }): TimeRange {
  const [from, to] = [parseTime(query.from), parseTime(query.to)];
  if (from !== undefined && to !== undefined && from >= to)
    throw invalidMember('from', 'must be before `to`');
  return { from, to };
}

function parseTime(text: string | undefined): Date | undefined {
  return text === undefined ? undefined : new Date(text);
}
