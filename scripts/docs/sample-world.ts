// What the short samples of the guides take as given: clients that were made before, and functions that a reader has.
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
    why?: string,
  ): Promise<Record<string, string>>;
}
