// A session for display, built from its messages and events.
import { describe, expect, test } from 'vitest';
import type { Session, UiMessage } from '@townhall/agent';
import { createThread } from '../../src/console/pages/thread.ts';

const session = { status: 'idle', activeRunId: null, title: null, archivedAt: null } as Session;
const message = (role: UiMessage['role'], id: string, metadata: Record<string, unknown>): UiMessage => ({
  id,
  role,
  parts: [{ type: 'text', text: id }],
  metadata,
});
const threadOf = (messages: UiMessage[]) =>
  createThread({ session, messages, seq: 1, queue: [], approvals: [], runs: [] });

describe('prompt', () => {
  test('is that of the first run for an answer that was regenerated twice', () => {
    const thread = threadOf([
      message('user', 'Other.', { runId: 'run_0' }),
      message('user', 'Go.', { runId: 'run_1' }),
      message('assistant', 'A', { runId: 'run_1', status: 'replaced', replacedBy: 'run_2' }),
      message('assistant', 'B', { runId: 'run_2', status: 'replaced', replacedBy: 'run_3' }),
      message('assistant', 'C', { runId: 'run_3', status: 'failed' }),
    ]);
    const answer = thread.messages().find(({ id }) => id === 'C');
    expect(answer && thread.prompt(answer)).toMatchObject({ id: 'Go.' });
  });
});
