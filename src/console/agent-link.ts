// The console's connection to its agent, with a client for each variant. The token file is read for
// every call, so a new token takes effect at once. The agent itself reports its variant.
import { readFile } from 'node:fs/promises';
import { createAgentClient, AgentError, type AgentClient } from '@townhall/agent';
import {
  createAgentClient as createClassicClient,
  type AgentClient as ClassicClient,
} from '@townhall/agent/classic';
import type { Variant } from './pages/shared/views.ts';

export interface AgentLink {
  url: string;
  client: AgentClient;
  classic: ClassicClient;
  /** Cached until `forgetVariant`. */
  variant(signal: AbortSignal): Promise<Variant>;
  /** Call it after the agent was unreachable: it may have restarted in the other variant. */
  forgetVariant(): void;
}

/** The token file is unusable; the message is for the user of the console. */
export class TokenFileError extends Error {
  override name = 'TokenFileError';
}

// Longer than the longest deadline of an action, which is ten minutes.
const callTimeoutMs = 660_000;

export function linkAgent({ agentUrl, tokenFile }: { agentUrl: string; tokenFile: string }): AgentLink {
  const token = async (): Promise<string> => {
    const text = await readFile(tokenFile, 'utf8').catch((cause: unknown) => {
      throw new TokenFileError(
        `The agent's token file ${tokenFile} cannot be read. Start the agent, or locate its files with --data-dir or --token-file.`,
        { cause },
      );
    });
    if (!/^[\x21-\x7e]{1,512}\s*$/.test(text))
      throw new TokenFileError(`The file ${tokenFile} does not contain a token.`);
    return text.trim();
  };
  const options = { baseUrl: agentUrl, token, timeoutMs: callTimeoutMs };
  const client = createAgentClient(options);
  let cachedVariant: Variant | undefined;
  return {
    url: agentUrl,
    client,
    classic: createClassicClient(options),
    async variant(signal) {
      cachedVariant ??= await client.plugins.listCatalog(undefined, { signal }).then(
        () => 'current' as const,
        (error: unknown) => {
          if (AgentError.isInstance(error) && error.code === 'route_not_found') return 'classic' as const;
          throw error;
        },
      );
      return cachedVariant;
    },
    forgetVariant() {
      cachedVariant = undefined;
    },
  };
}
