// The attachments of an input that is not accepted.
import { expect, test, vi } from 'vitest';
import { createInputSubmitter, type SubmitOptions } from '../../../src/agent/sessions/submit.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { Problem, type ProblemKind } from '../../../src/kernel/problem.ts';
import type { ProblemCode } from '../../../src/contract/problem-code.gen.ts';

test.each<[ProblemCode, ProblemKind, number]>([
  ['draining', 'unavailable', 1],
  ['queue_full', 'rate_limited', 1],
  // The input may have been accepted.
  ['database_unavailable', 'unavailable', 0],
])('an input that fails with %s (%s) discards its files %i times', async (code, kind, discards) => {
  const discard = vi.fn<() => Promise<void>>(async () => {});
  const options = {
    agentId: 'agt_1',
    runs: {
      async submit() {
        throw new Problem(kind, code, 'No.');
      },
    },
    files: { write: async () => {}, discard },
    hooks: { pipeline: async (_name: string, value: object) => value, guard: async () => {} },
    clock: systemClock,
  };
  const inputs = createInputSubmitter(options as unknown as SubmitOptions);
  const attachments = [{ fileName: 'a.txt', contentType: 'text/plain', content: 'a' }];
  const submission = inputs.submit({
    to: 'own',
    origin: 'execute',
    parts: [{ type: 'text', text: 'Go.' }],
    attachments,
  });
  await expect(submission).rejects.toMatchObject({ code });
  expect(discard).toHaveBeenCalledTimes(discards);
});
