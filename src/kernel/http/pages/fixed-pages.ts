// Pages of one document that stand outside the contract, such as the one that confirms a device login.

export interface FixedPage {
  body: string;
  /** Names in lower case. */
  headers: Readonly<Record<string, string>>;
}
