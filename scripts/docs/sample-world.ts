// Globals that the short samples of the guides use without declaring them: clients created earlier, and
// functions of the reader's program. The samples are type-checked with these globals.
import type { AgentError as AgentFailure, createAgentClient } from '@townhall/agent';
import type { createGatewayClient, GatewayError as GatewayFailure } from '@townhall/gateway';

declare global {
  var client: ReturnType<typeof createGatewayClient>;
  var admin: ReturnType<typeof createGatewayClient>;
  var user: ReturnType<typeof createGatewayClient>;
  var agent: ReturnType<typeof createAgentClient>;
  var GatewayError: typeof GatewayFailure;
  var AgentError: typeof AgentFailure;
  function readToken(): Promise<string>;
  function show(text: string): void;
  function askThePerson(
    inputs: readonly { name: string; label: string }[],
    reason?: string,
  ): Promise<Record<string, string>>;
}
