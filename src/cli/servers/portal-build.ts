// Builds the portal of a checkout: installing a checkout skips this step to stay quick.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { assetPath, isSingleExecutable } from '../../kernel/assets.ts';

export interface PortalBuild {
  /** Resolves when the portal is built. Rejects with what the build printed. */
  run(): Promise<void>;
  /** Stops a running build. */
  close(): void;
}

// A build takes three seconds on an idle machine.
const buildTimeoutMs = 300_000;
// Only the end of the output is kept; it has the reason of a failure.
const maxOutputLength = 4_000;

/** Undefined in an installed package and in the executable, which already contain the portal. */
export function portalBuild(): PortalBuild | undefined {
  const script = assetPath('scripts/docs.ts');
  if (isSingleExecutable || !existsSync(script)) return undefined;
  const shutdown = new AbortController();
  return {
    run: () => runBuild(script, shutdown.signal),
    close: () => shutdown.abort(),
  };
}

function runBuild(script: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [script, '--no-check', '--if-changed'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: buildTimeoutMs,
      signal,
    });
    // The lower priority keeps the build from slowing down calls at the gateway.
    if (child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_BELOW_NORMAL);
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream
        .setEncoding('utf8')
        .on('data', (text: string) => (output = `${output}${text}`.slice(-maxOutputLength)));
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0) resolve();
      else reject(new Error(`The portal was not built (exit code ${code}):\n${output}`));
    });
  });
}
