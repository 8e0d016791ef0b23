// The three documents of the contract and the targets of their generated code. Documents are listed
// only here and in redocly.yaml.

/** One document of the contract with everything that its generated code needs. */
export interface Surface {
  /** The name under `apis` in redocly.yaml and the folder under src/contract. */
  readonly name: string;
  readonly title: string;
  /** Folder of the client's generated part, from the root of the repository. */
  readonly clientFolder: string;
  /** The class of the generated client that contains its operations. */
  readonly container: string;
  /** Security scheme to the kind of identity that it proves. */
  readonly identities: Readonly<Record<string, string>>;
}

export const surfaces: readonly Surface[] = [
  {
    name: 'gateway',
    title: 'Townhall gateway',
    clientFolder: 'clients/gateway/src/generated',
    container: 'GatewayOperations',
    identities: {
      userToken: 'user',
      xApiKey: 'user',
      apiKey: 'user',
      xGoogApiKey: 'user',
      adminSession: 'admin',
      machineCredential: 'admin',
    },
  },
  {
    name: 'agent',
    title: 'Townhall agent',
    clientFolder: 'clients/agent/src/generated/current',
    container: 'AgentOperations',
    identities: { agentToken: 'agent' },
  },
  {
    name: 'agent-classic',
    title: 'Townhall agent, classic variant',
    clientFolder: 'clients/agent/src/generated/classic',
    container: 'AgentOperations',
    identities: { agentToken: 'agent' },
  },
];

/**
 * The identity of a caller without a credential; an empty `security` admits it beside all others.
 */
export const guest = 'guest';
