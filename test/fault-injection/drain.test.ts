// SIGTERM to a gateway with open streams; drain.ts does the same with a hundred streams.
import { expect, test } from 'vitest';
import { makeDatabase } from '../support/databases.ts';
import { findViolations, drainUnderStreams } from './drain-run.ts';

test('SIGTERM drains a gateway with open streams', { timeout: 240_000 }, async () => {
  const place = await makeDatabase({ isEmpty: true });
  try {
    const options = {
      streams: 8,
      longStreams: 3,
      shortMs: 2_000,
      longMs: 60_000,
      drainMs: 6_000,
      toleranceMs: 8_000,
      database: place.options,
    };
    const result = await drainUnderStreams(options);
    expect(findViolations(result, options), JSON.stringify(result)).toEqual([]);
    expect(result).toMatchObject({ completeStreams: 5, endedByDraining: 3 });
  } finally {
    await place.remove();
  }
});
