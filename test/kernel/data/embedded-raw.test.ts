// Raw calls of PGlite, without a file under them.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findMessages, simpleQuery } from '../../../src/kernel/data/embedded/protocol.ts';
import { rawProtocol } from '../../../src/kernel/data/embedded/raw.ts';

describe('raw calls', { timeout: 60_000 }, () => {
  let engine: PGlite;
  let run: (bytes: Uint8Array) => Uint8Array;
  beforeAll(async () => {
    engine = await PGlite.create();
    run = rawProtocol(engine);
  }, 60_000);
  afterAll(() => engine.close());

  test('answer rows and errors', () => {
    expect(findMessages(run(simpleQuery('select 1')), 'D')).toHaveLength(1);
    expect(findMessages(run(simpleQuery('select nothing')), 'E')).toHaveLength(1);
    expect(findMessages(run(simpleQuery("select repeat('x', 300000)")), 'D')).toHaveLength(1);
  });

  test('give the answer to a start-up message a buffer of its own', async () => {
    const other = await PGlite.create();
    try {
      const answer = rawProtocol(other)(startUpMessage('postgres'));
      expect(answer.length).toBeGreaterThan(0);
      expect(answer.buffer.byteLength).toBe(answer.length);
    } finally {
      await other.close();
    }
  });

  test('keep nothing of their answers', () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const heapBytes = () => {
      collect();
      return process.memoryUsage().heapUsed;
    };
    const statement = simpleQuery("select repeat('x', 200000)");
    run(statement);
    const bytesBefore = heapBytes();
    for (let index = 0; index < 100; index += 1) run(statement);
    expect(heapBytes() - bytesBefore).toBeLessThan(5_000_000);
  });
});

/** Length, protocol version 3.0, and the names and values of the parameters. */
function startUpMessage(user: string): Uint8Array {
  const parameters = Buffer.from(`user\0${user}\0database\0postgres\0\0`);
  const message = Buffer.alloc(8 + parameters.length);
  message.writeUInt32BE(message.length, 0);
  message.writeUInt32BE(0x00030000, 4);
  parameters.copy(message, 8);
  return message;
}
