//! What a module is: paths, versions, constraints, the module file, and what `.tf` files say.
