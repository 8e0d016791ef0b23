// Runs the code samples of the contract against running servers, with the addresses,
// tokens and values of this run.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
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
  words: string[],
  { cwd, env }: ProgramOptions,
): Promise<string> {
  const { stdout } = await run(command, words, {
    cwd,
    env: { PATH: process.env['PATH'] ?? '', ...env },
    timeout: 60_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout;
}
