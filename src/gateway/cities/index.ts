// The door of the cities: the factory, its store, and the types that others may name.
export { cities, type CitiesNeeds } from './cities.ts';
export { citiesStore, type CitiesStore, type City } from './store.ts';
