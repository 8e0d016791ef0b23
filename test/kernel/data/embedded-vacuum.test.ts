// When the embedded database vacuums which table, on a scripted engine.
import { describe, expect, it } from 'vitest';
import { createVacuum } from '../../../src/kernel/data/embedded/vacuum.ts';

const everyMs = 30_000;

function startVacuum({ refuses }: { refuses: (statement: string) => boolean }) {
  const statements: string[] = [];
  let nowMs = 0;
  const vacuum = createVacuum(
    {
      nowMs: () => nowMs,
      query(statement) {
        statements.push(statement.trim());
        if (refuses(statement)) return null;
        return statement.includes('pg_stat_user_tables') ? [['16384', 'agent.sessions_events']] : [];
      },
    },
    { everyMs },
  );
  return {
    /** Advances the clock by one step a second and returns the vacuum statements of that time. */
    advance(ms: number): string[] {
      statements.length = 0;
      for (const endMs = nowMs + ms; nowMs < endMs;) {
        nowMs += 1_000;
        vacuum.step();
      }
      return statements.filter((statement) => statement.startsWith('vacuum'));
    },
    statements,
  };
}

describe('a vacuum of the embedded database', () => {
  it('looks for deleted rows once in its interval', () => {
    const { advance } = startVacuum({ refuses: () => false });
    expect(advance(everyMs - 1_000)).toEqual([]);
    expect(advance(1_000)).toEqual(['vacuum agent.sessions_events']);
    expect(advance(everyMs)).toEqual(['vacuum agent.sessions_events']);
  });

  it('doubles the pause after each interruption of a table', () => {
    const { advance } = startVacuum({ refuses: (statement) => statement.startsWith('vacuum') });
    // The pauses are 60, 120 and 240 seconds.
    expect(advance(everyMs)).toHaveLength(1);
    expect(advance(60_000)).toHaveLength(1);
    expect(advance(60_000)).toHaveLength(0);
    expect(advance(60_000)).toHaveLength(1);
    expect(advance(180_000)).toHaveLength(0);
  });

  it('sends no further statement after an interruption', () => {
    const { advance, statements } = startVacuum({ refuses: (statement) => statement.startsWith('vacuum') });
    advance(everyMs);
    expect(statements.at(-1)).toBe('vacuum agent.sessions_events');
  });
});
