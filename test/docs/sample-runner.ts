// Runs the code samples of the contract and of the guides against running servers, with the addresses,
// tokens and values of this run.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { vi } from 'vitest';
import { preparations, type Preparation } from './sample-preparations.ts';
import type { SampledOperationEntry } from './sampled-operations.ts';
import type { SampleServers } from './sample-servers.ts';

const run = promisify(execFile);

export interface ProgramOptions {
  cwd: string;
  env: Readonly<Record<string, string>>;
}

export function sampleAgent(servers: SampleServers, { surface }: Pick<SampledOperationEntry, 'surface'>) {
  return servers.agents[surface === 'agent-classic' ? 'classic' : 'current'];
}

/** Creates the resources that the sample refers to. */
export async function prepareSample(
  servers: SampleServers,
  entry: SampledOperationEntry,
): Promise<Preparation> {
  const name = `${entry.surface.replace('-classic', '')}/${entry.aliasOf ?? entry.id}`;
  return (await preparations[name]?.(servers, sampleAgent(servers, entry))) ?? {};
}

/** The sample with the servers and the prepared values of this run. */
export function adaptSample(
  source: string,
  servers: SampleServers,
  entry: SampledOperationEntry,
  { replace = {} }: Preparation,
): string {
  const pairs = Object.entries({
    'http://127.0.0.1:43127': servers.gateway.url,
    'http://127.0.0.1:5314': sampleAgent(servers, entry).url,
    ...replace,
  });
  return pairs.reduce((text, [from, to]) => text.replaceAll(from, to), source);
}

export function sampleTokens(servers: SampleServers, entry: SampledOperationEntry): Record<string, string> {
  return {
    TOWNHALL_TOKEN: servers.gateway.userToken,
    TOWNHALL_ADMIN_TOKEN: servers.gateway.adminToken,
    TOWNHALL_AGENT_TOKEN: sampleAgent(servers, entry).token,
  };
}

/**
 * The output of the sample; rejects when the response is not a success. The headers
 * of the response are written to the file.
 */
export function runCurl(text: string, options: ProgramOptions & { headerFile?: string }): Promise<string> {
  const { headerFile = '/dev/null' } = options;
  return runProgram(
    'sh',
    ['-c', `curl() { command curl -sS --fail-with-body --dump-header '${headerFile}' "$@"; }\n${text}`],
    options,
  );
}

export async function runProgram(
  command: string,
  args: string[],
  { cwd, env }: ProgramOptions,
): Promise<string> {
  const { stdout } = await run(command, args, {
    cwd,
    env: { PATH: process.env['PATH'] ?? '', ...env },
    timeout: 60_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout;
}

export interface SampleFolder {
  path: string;
  /** Returns what the module prints, one value per line; rejects when the module throws. */
  runModule(source: string): Promise<string>;
  remove(): void;
}

/**
 * Creates a folder below the repository, so that samples resolve the packages that they import: packages
 * of the repository, and packages of test/ such as the SDKs of providers.
 */
export function createSampleFolder(): SampleFolder {
  const root = path.join(import.meta.dirname, '../..');
  const folder = mkdtempSync(path.join(root, 'build/samples-'));
  symlinkSync(path.join(root, 'test/node_modules'), path.join(folder, 'node_modules'));
  let moduleCount = 0;
  return {
    path: folder,
    async runModule(source) {
      moduleCount += 1;
      const file = path.join(folder, `sample-${moduleCount}.ts`);
      writeFileSync(file, `${source}\nexport {};\n`);
      const print = vi.spyOn(console, 'log').mockImplementation(() => {});
      const write = vi.spyOn(process.stdout, 'write').mockImplementation(() => true);
      try {
        await import(/* @vite-ignore */ pathToFileURL(file).href);
        return [...print.mock.calls, ...write.mock.calls].flat().map(printedText).join('\n');
      } finally {
        print.mockRestore();
        write.mockRestore();
      }
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

function printedText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value));
}
