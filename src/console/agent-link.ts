// The console's line to its agent: both entries of the client on one token, which is read anew for each call, so that a
// new one in the file is used at once. Which variant the agent serves is asked of the agent itself.
import { readFile } from 'node:fs/promises';
import { createAgentClient, AgentError, type AgentClient } from '@townhall/agent';
import {
  createAgentClient as createClassicClient,
  type AgentClient as ClassicClient,
} from '@townhall/agent/classic';

export type Variant = 'current' | 'classic';

export interface AgentLink {
  url: string;
  client: AgentClient;
  classic: ClassicClient;
  /** Asked once, and again after the agent was away. */
  variant(signal: AbortSignal): Promise<Variant>;
  /** The agent may come back as another one. */
  forget(): void;
}

/** The token file cannot be used; the message is for the person at the console. */
export class TokenFileError extends Error {
  override name = 'TokenFileError';
}

// No operation that the console offers waits longer by itself; an action may have ten minutes.
const callMs = 660_000;

export function linkAgent({ agentUrl, tokenFile }: { agentUrl: string; tokenFile: string }): AgentLink {
  const token = async (): Promise<string> => {
    const text = await readFile(tokenFile, 'utf8').catch((cause: unknown) => {
      throw new TokenFileError(
        `The agent's token file ${tokenFile} cannot be read. Start the agent, or say --data-dir or --token-file.`,
        { cause },
      );
    });
    if (!/^[\x21-\x7e]{1,512}\s*$/.test(text))
      throw new TokenFileError(`The file ${tokenFile} does not hold a token.`);
    return text.trim();
  };
  const options = { baseUrl: agentUrl, token, timeoutMs: callMs };
  const client = createAgentClient(options);
  let known: Variant | undefined;
  return {
    url: agentUrl,
    client,
    classic: createClassicClient(options),
    async variant(signal) {
      known ??= await client.plugins.listCatalog(undefined, { signal }).then(
        () => 'current' as const,
        (error: unknown) => {
          if (AgentError.isInstance(error) && error.code === 'route_not_found') return 'classic' as const;
          throw error;
        },
      );
      return known;
    },
    forget() {
      known = undefined;
    },
  };
}
