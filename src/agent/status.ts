// Health and the contract for anyone, and the agent's name for the holder of its token. None of these
// operations reads the database, so they answer even if it is unavailable: they show that this process
// responds.
import type { Clock } from '../kernel/clock.ts';
import { publishDocument, serviceDescription } from '../kernel/contract/published-document.ts';
import type { AgentConfig } from './config.ts';
import type { Service } from './service.ts';

/** The document of the variant that this agent serves. */
export interface AgentContract {
  info: { version: string };
}

export function status({
  name,
  variant,
  contract,
  clock,
  isDraining,
}: {
  name: string;
  variant: AgentConfig['variant'];
  contract: AgentContract;
  clock: Clock;
  /** Whether the agent is shutting down and takes no more work. */
  isDraining(): boolean;
}): Service<'status'> {
  const timestamp = () => clock.now().toISOString();
  const document = publishDocument(contract);
  const headers = { link: serviceDescription };
  const { version } = contract.info;
  return {
    name: 'status',
    handlers: {
      'status.getHealth': async () => ({
        status: 200,
        body: { status: 'ok', timestamp: timestamp() },
        headers,
      }),
      'status.getDocument': async (call) => document(call.headers['if-none-match']),
      'status.getStatus': async () => ({
        status: 200,
        body: {
          name,
          status: isDraining() ? 'draining' : 'running',
          variant,
          version,
          timestamp: timestamp(),
        },
        headers,
      }),
    },
  };
}
