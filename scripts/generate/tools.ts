// Runs the tools of the contract as child processes, without telemetry, update notices and network.
// Callers also check a tool's output, since its exit code alone is not reliable.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

export interface ToolRun {
  code: number;
  stdout: string;
  stderr: string;
}

/**
 * Runs a JavaScript or TypeScript program until it exits. Rejects when it cannot be started or is killed,
 * but not for an exit code.
 */
export function runNode(
  program: string,
  parameters: string[],
  { cwd, timeoutMs = 180_000 }: { cwd: string; timeoutMs?: number },
): Promise<ToolRun> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...parameters], {
      cwd,
      timeout: timeoutMs,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        NO_COLOR: '1',
        FORCE_COLOR: '0',
        CI: '1',
        REDOCLY_TELEMETRY: 'off',
        REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true',
        DO_NOT_TRACK: '1',
      },
    });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    child.once('error', reject);
    child.once('close', (code, signal) => {
      if (signal === null) resolve({ code: code ?? 1, stdout, stderr });
      else
        reject(
          new Error(
            `${path.basename(program)} was killed by ${signal} after at most ${timeoutMs} ms\n${stderr}`,
          ),
        );
    });
  });
}

/** Runs a command of the Redocly CLI in a folder with a redocly.yaml. */
export function runRedocly(root: string, parameters: string[]): Promise<ToolRun> {
  return runNode(path.join(packageFolder('@redocly/cli'), 'bin/cli.js'), parameters, { cwd: root });
}

/** The installed version of a package, for output that depends on the tool. */
export function packageVersion(name: string): string {
  const { version } = JSON.parse(readFileSync(path.join(packageFolder(name), 'package.json'), 'utf8')) as {
    version: string;
  };
  return version;
}

function packageFolder(name: string): string {
  return path.join(import.meta.dirname, '../../node_modules', name);
}
