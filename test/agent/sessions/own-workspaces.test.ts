// The folder of a session that could not be created.
import { describe, expect, test } from 'vitest';
import { createOwnWorkspaces } from '../../../src/agent/sessions/own-workspaces.ts';
import { Problem } from '../../../src/kernel/problem.ts';

const session = { key: 'ses_1', workspace: 'folder' } as const;

/** Creates a session whose insertion fails, and returns the keys of the removed workspaces. */
async function failWith(error: Error): Promise<string[]> {
  const removedKeys: string[] = [];
  const ownWorkspaces = createOwnWorkspaces({
    agentId: 'agent',
    store: { countOwnWorkspaces: async () => 0 },
    workspaces: { remove: async ({ key }) => void removedKeys.push(key) },
    maxWorkspaces: 1,
  });
  const creation = ownWorkspaces.create(session, {
    param: 'workspace',
    createWorkspace: async () => {},
    createSession: async () => {
      throw error;
    },
  });
  await expect(creation).rejects.toBe(error);
  return removedKeys;
}

describe('a workspace whose session cannot be created', () => {
  test('is removed', async () => {
    expect(await failWith(new Error('The value is too long.'))).toEqual(['ses_1']);
  });

  test('stays when the session may exist', async () => {
    expect(await failWith(new Problem('unavailable', 'not_ready', 'The connection was lost.'))).toEqual([]);
  });
});
