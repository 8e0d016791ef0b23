// Builds the portal for the packages, if it is absent or older than its sources.

import path from 'node:path';
import { runNode } from '../generate/tools.ts';

/** Throws with the output of a failed build. */
export async function buildPortal(root: string): Promise<void> {
  const { code, stdout, stderr } = await runNode(path.join(root, 'scripts/docs.ts'), ['--if-changed'], {
    cwd: root,
    timeoutMs: 600_000,
  });
  if (code !== 0) throw new Error(`the portal was not built:\n${stdout}${stderr}`);
}
