// The removal of a session while one of its steps fails.
import { describe, expect, test } from 'vitest';
import { removeSession } from '../../../src/agent/sessions/sessions.ts';

type Options = Parameters<typeof removeSession>[0];
type Session = Parameters<typeof removeSession>[1];

describe('removeSession', () => {
  test('removes snapshots and workspace while attachments are unreachable', async () => {
    const steps: string[] = [];
    const options = {
      runs: { cancel: async () => {} },
      eventLog: { remove: async () => 'gone' },
      files: { removeAll: () => Promise.reject(new Error('The bucket is unreachable.')) },
      snapshots: { removeSession: async () => steps.push('snapshots') },
      workspaces: { rootOf: () => '/w', remove: async () => steps.push('workspace') },
    } as unknown as Options;
    const session = { key: 'k', workspace: 'folder' } as Session;
    await expect(removeSession(options, session)).rejects.toThrow('unreachable');
    expect(steps).toEqual(['snapshots', 'workspace']);
  });
});
