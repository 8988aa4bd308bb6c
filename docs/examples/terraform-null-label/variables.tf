variable "namespace" {
  description = "Whose it is: an organisation or a team, such as `acme`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*$", var.namespace))
    error_message = "The namespace must begin with a lower-case letter and go on with lower-case letters, digits and hyphens."
  }
}

variable "stage" {
  description = "Where it runs, such as `staging` or `production`. Left out of the identifier where null."
  type        = string
  default     = null

  validation {
    condition     = var.stage == null || can(regex("^[a-z][a-z0-9-]*$", var.stage))
    error_message = "The stage must begin with a lower-case letter and go on with lower-case letters, digits and hyphens."
  }
}

variable "name" {
  description = "What it is, such as `shop`."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*$", var.name))
    error_message = "The name must begin with a lower-case letter and go on with lower-case letters, digits and hyphens."
  }
}

variable "attributes" {
  description = "Which part or copy of it this is, such as `[\"api\", \"blue\"]`, in the order in which they are to stand."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for attribute in var.attributes : can(regex("^[a-z0-9][a-z0-9-]*$", attribute))])
    error_message = "Each attribute must consist of lower-case letters, digits and hyphens, and not begin with a hyphen."
  }
}

variable "tags" {
  description = "Further tags. One that is named here wins over a generated one."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "max_length" {
  description = "The longest identifier that is wanted. 63 is the longest label of a DNS name. A longer one is cut and ends in a suffix that tells it from others that are cut at the same place."
  type        = number
  default     = 63
  nullable    = false

  validation {
    condition     = var.max_length >= 16 && floor(var.max_length) == var.max_length
    error_message = "The maximum length must be a whole number of at least 16, so that something readable is left beside the suffix."
  }
}
