// Pages of one document that are not part of the contract, such as the page that confirms a device login.

export interface FixedPage {
  body: string;
  /** Names in lower case. */
  headers: Readonly<Record<string, string>>;
}
