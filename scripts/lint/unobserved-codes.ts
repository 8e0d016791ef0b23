// The listed error codes that no test can observe in a server of its own process, each with its reason.
export const unobservedCodes: Readonly<Record<string, string>> = {};
