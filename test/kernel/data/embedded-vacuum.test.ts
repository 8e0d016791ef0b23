// When the embedded database vacuums which table, on a scripted engine.
import { describe, expect, it } from 'vitest';
import { createVacuum } from '../../../src/kernel/data/embedded-vacuum.ts';

const everyMs = 30_000;

function world({ refuses }: { refuses: (statement: string) => boolean }) {
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
    /** The vacuums of the steps of so much time, one step a second. */
    pass(ms: number): string[] {
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
    const { pass } = world({ refuses: () => false });
    expect(pass(everyMs - 1_000)).toEqual([]);
    expect(pass(1_000)).toEqual(['vacuum agent.sessions_events']);
    expect(pass(everyMs)).toEqual(['vacuum agent.sessions_events']);
  });

  it('tries an interrupted table again later, each time later still', () => {
    const { pass } = world({ refuses: (statement) => statement.startsWith('vacuum') });
    expect(pass(everyMs)).toHaveLength(1);
    expect(pass(60_000)).toHaveLength(1);
    expect(pass(60_000)).toHaveLength(0);
    expect(pass(60_000)).toHaveLength(1);
    expect(pass(180_000)).toHaveLength(0);
  });

  it('asks nothing further after an interruption', () => {
    const { pass, statements } = world({ refuses: (statement) => statement.startsWith('vacuum') });
    pass(everyMs);
    expect(statements.at(-1)).toBe('vacuum agent.sessions_events');
  });
});
